// What a user who wants to serve can get wrong, before there is a model.
#include <gtest/gtest.h>

#include "tests/tools/bad_input.h"

namespace trimtab {
namespace {

TEST_P(BadInputTest, EndsWithItsCodeAndOneLine) { ExpectRefused(); }

INSTANTIATE_TEST_SUITE_P(
    Serving, BadInputTest,
    testing::Values(
        BadInput{"NoRate",
                 {"estimate", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "0"},
                 2,
                 "--rate: '0' is not a number above 0"},
        BadInput{
            "NoRateOfABench", {"bench", "--rate", "0"}, 2, "--rate: '0' is not a number above 0"},
        BadInput{"NoLoad",
                 {"bench"},
                 2,
                 "expected either --concurrency (closed loop) or --rate (open loop)"},
        BadInput{"NoRanks",
                 {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "1", "--max-ranks", "0"},
                 2,
                 "--max-ranks: '0'"},
        BadInput{"SharesMoreThanAPrompt",
                 {"estimate", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "1", "--shared-prefix", "33"},
                 2,
                 "--shared-prefix: 33 tokens; the longest prompt of 32/8 has 32"},
        BadInput{"StudyIsAFolder",
                 {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "1", "--study", "@letters"},
                 7,
                 "letters: not a study: it is a folder"},
        BadInput{"StudyIsText",
                 {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "1", "--study", "@text.txt"},
                 7,
                 "text.txt: not a study"},
        BadInput{
            "NothingFits",
            {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
             "--workload", "32/8", "--rate", "1", "--study", "@s.db", "--memory-per-rank", "1KiB"},
            4,
            "with 1.00 KiB of memory per rank"},
        BadInput{
            "NothingFitsAgain",
            {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
             "--workload", "32/8", "--rate", "1", "--study", "@s.db", "--memory-per-rank", "2KiB"},
            4,
            "with 2.00 KiB of memory per rank"},
        BadInput{"DimensionThatIsNone",
                 {"search", "--for", "serving", "--model", "gpt2-tiny", "--cluster", "8xh100",
                  "--workload", "32/8", "--rate", "1", "--study", "@s.db", "--fix", "tpp=2"},
                 2,
                 "no dimension is called 'tpp'"},
        BadInput{"NoFolderOfWeights",
                 {"generate", "--prompt", "a", "--load-hf", "@nothing"},
                 3,
                 "nothing: no such folder"},
        BadInput{"CalibrationTokensOfNothing",
                 {"quantize", "--load", "@letters", "--out", "@q", "--calibration-tokens", "9"},
                 2,
                 "--calibration-tokens needs --calibration"}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace trimtab
