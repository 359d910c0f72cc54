"""Counts GoogleTest cases over everything one `bazel test` ran, from its build event file.

Prints how long the tests of each package took (added up: they run side by side), how many cases
were skipped for which reason, the totals that cases recorded (a property "total_layouts_trained" of
5 adds 5 to "layouts trained") and the failed cases, then one last line: "N passed, N failed". A
test that did not build, or crashed before it could report, counts as one failed case. Exits 1 when
any failed.
"""

import argparse
import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

# What `bazel test` exits with when it ran everything it was asked to: all passed, or some failed.
COMPLETE = (0, 3)

# Properties that are added up over all cases.
TOTAL = "total_"


def read_events(path):
    """Reads what became of the tests.

    Returns ({label: tags}, labels that cannot build here, labels that should but did not build,
    {(label, shard): last result}).
    """
    tests, incompatible, broken, results = {}, set(), set(), {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            identity = event.get("id", {})
            if "testSize" in event.get("configured", {}):
                label = identity["targetConfigured"]["label"]
                tests[label] = event["configured"].get("tag", [])
            elif event.get("aborted", {}).get("reason") == "SKIPPED":
                incompatible.add(identity["targetCompleted"]["label"])
            elif "targetCompleted" in identity:
                if not event.get("completed", {}).get("success"):
                    broken.add(identity["targetCompleted"]["label"])
            elif "testResult" in event:
                result = identity["testResult"]
                results[result["label"], result.get("shard", 0)] = event["testResult"]
    return tests, incompatible.intersection(tests), broken, results


def skip_reason(case):
    """The message given to GTEST_SKIP, without the file and line that precede it."""
    node = case.find("skipped")
    message = node.get("message", "") if node is not None else "disabled"
    location, _, reason = message.partition("\n")
    return (reason or location).strip() or "no reason given"


def count_cases(xml_path):
    """Returns (passed count, failed names, [(skipped name, reason)], totals) of one test.xml."""
    passed, failed, skipped, totals = 0, [], [], collections.Counter()
    for case in ElementTree.parse(xml_path).getroot().iter("testcase"):
        for node in case.iter("property"):
            if node.get("name").startswith(TOTAL):
                totals[node.get("name").removeprefix(TOTAL)] += int(node.get("value"))
        name = f'{case.get("classname")}.{case.get("name")}'
        if case.get("classname") is None:
            # Bazel's own stand-in for the report of a program that left none.
            failed.append("(ended before it could report)")
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped.append((name, skip_reason(case)))
        else:
            passed += 1
    return passed, failed, skipped, totals


def print_times(results):
    """One line per package of tests, the longest first; what takes less than a second has none."""
    spent, earlier = collections.Counter(), collections.Counter()
    for (label, _), result in results.items():
        area = label.partition(":")[0].removeprefix("//")
        milliseconds = int(result.get("testAttemptDurationMillis", 0))
        spent[area] += milliseconds
        if result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely"):
            earlier[area] += milliseconds
    for area, milliseconds in spent.most_common():
        if milliseconds < 1000:
            break
        cached = f", {earlier[area] // 1000} s of it in earlier runs" if earlier[area] else ""
        print(f"{area} took {milliseconds // 1000} s{cached}")


def print_skipped(skipped, list_path):
    """One line per reason, the most frequent first; every case goes to the file."""
    for reason, count in collections.Counter(reason for _, reason in skipped).most_common():
        print(f"skipped: {count} {'case' if count == 1 else 'cases'}: {reason}")
    with open(list_path, "w", encoding="utf-8") as file:
        file.writelines(f"{name}: {reason}\n" for name, reason in skipped)
    if skipped:
        print(f"skipped cases by name: {list_path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events")
    parser.add_argument("--bazel-status", type=int, required=True)
    parser.add_argument("--skipped-list", required=True, help="file to write")
    parser.add_argument("--left-out", metavar="TAG", help="tests with this tag were not to run")
    arguments = parser.parse_args()

    tests, incompatible, broken, results = read_events(arguments.events)
    reported = {label for label, _ in results}
    left_out = {label for label, tags in tests.items() if arguments.left_out in tags}
    left_out -= incompatible | broken
    passed, failed, totals = 0, [], collections.Counter()
    skipped = [(label, "needs the CUDA toolkit") for label in sorted(incompatible)]
    skipped += [(label, f"{arguments.left_out}, left to tools/test --all")
                for label in sorted(left_out)]
    for (label, _), result in sorted(results.items()):
        outputs = {o["name"]: o.get("uri", "") for o in result.get("testActionOutput", [])}
        case_failures = []
        if "test.xml" in outputs:
            xml_path = urllib.parse.unquote(urllib.parse.urlparse(outputs["test.xml"]).path)
            case_passed, case_failures, case_skipped, case_totals = count_cases(xml_path)
            passed += case_passed
            totals += case_totals
            failed += [f"{label} {name}" for name in case_failures]
            skipped += [(f"{label} {name}", reason) for name, reason in case_skipped]
        if result["status"] != "PASSED" and not case_failures:
            failed.append(f'{label} ({result["status"].lower()} without a report)')
    failed += [f"{label} (did not run)"
               for label in sorted(set(tests) - reported - incompatible - left_out)]
    if arguments.bazel_status not in COMPLETE and not failed:
        failed.append(f"the build (bazel exited with {arguments.bazel_status})")

    print_times(results)
    print_skipped(skipped, arguments.skipped_list)
    for name, total in sorted(totals.items()):
        print(f"{name.replace('_', ' ')}: {total}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
