// What must hold of a study, whatever was killed when.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trimtab {

/// The seconds of a step by attempt, as measured.
using StudyHistory = std::map<int64_t, double>;

/// Of a study that nobody works on now.
StudyHistory ReadHistory(const std::string& study);

/// Nothing that was known is gone or changed.
void ExpectGrown(const StudyHistory& before, const StudyHistory& now);

/// After a search that ended by itself: the study is what its results file replays to. Every
/// finished line is a visit, once; none is running; no candidate was visited twice in a round.
void ExpectWholeStudy(const std::string& study);

}  // namespace trimtab
