"""Counts GoogleTest cases over everything one `bazel test` ran, from its build event file.

Prints the skipped and the failed cases, then one last line: "N passed, N failed". A test that did
not build, or crashed before it could report, counts as one failed case. Exits 1 when any failed.
"""

import argparse
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

# What `bazel test` exits with when it ran everything it was asked to: all passed, or some failed.
COMPLETE = (0, 3)


def read_events(path):
    """Returns (all test labels, those that cannot build here, {(label, shard): last result})."""
    labels, incompatible, results = set(), set(), {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            identity = event.get("id", {})
            if "testSize" in event.get("configured", {}):
                labels.add(identity["targetConfigured"]["label"])
            elif event.get("aborted", {}).get("reason") == "SKIPPED":
                incompatible.add(identity["targetCompleted"]["label"])
            elif "testResult" in event:
                result = identity["testResult"]
                results[result["label"], result.get("shard", 0)] = event["testResult"]
    return labels, labels & incompatible, results


def skip_reason(case):
    """The message given to GTEST_SKIP, without the file and line that precede it."""
    node = case.find("skipped")
    message = node.get("message", "") if node is not None else "disabled"
    location, _, reason = message.partition("\n")
    return (reason or location).strip() or "no reason given"


def count_cases(xml_path):
    """Returns (passed count, failed names, [(skipped name, reason)]) of one test.xml."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(xml_path).getroot().iter("testcase"):
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
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events")
    parser.add_argument("--bazel-status", type=int, required=True)
    arguments = parser.parse_args()

    labels, incompatible, results = read_events(arguments.events)
    passed, failed = 0, []
    skipped = [(label, "needs the CUDA toolkit") for label in sorted(incompatible)]
    for (label, _), result in sorted(results.items()):
        outputs = {o["name"]: o.get("uri", "") for o in result.get("testActionOutput", [])}
        case_failures = []
        if "test.xml" in outputs:
            xml_path = urllib.parse.unquote(urllib.parse.urlparse(outputs["test.xml"]).path)
            case_passed, case_failures, case_skipped = count_cases(xml_path)
            passed += case_passed
            failed += [f"{label} {name}" for name in case_failures]
            skipped += [(f"{label} {name}", reason) for name, reason in case_skipped]
        if result["status"] != "PASSED" and not case_failures:
            failed.append(f'{label} ({result["status"].lower()} without a report)')
    reported = {label for label, _ in results} | incompatible
    failed += [f"{label} (did not run)" for label in sorted(labels - reported)]
    if arguments.bazel_status not in COMPLETE and not failed:
        failed.append(f"the build (bazel exited with {arguments.bazel_status})")

    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
