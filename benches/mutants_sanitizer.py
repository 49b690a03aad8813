#!/usr/bin/env python3
"""What compute-sanitizer's four tools and a comparison of values find of the mutation suite, on this machine's GPU.

    cargo xtask mutants --write DIR             (where there is Rust)
    mutants_sanitizer.py DIR RESULTS.json [--warpsmith FILE] [--jobs 3] [--seconds 600]
    cargo xtask mutants --table RESULTS.json

Cases with the same shape, mask and configuration go through `warpsmith check --backend gpu --sanitize` together, a few processes at once (more of
them only wait for the driver's contexts). The verdict by values and what each tool reported are read from the records. A tool whose launches were not
seen to execute, as of a kernel that hangs, has `failed`, never `silent`. Five minutes for 117 cases on an H200.

Refuses to know: whether a report is right. Limits: one device, one run of each; the standard library only.
"""
import argparse
import collections
import concurrent.futures
import csv
import datetime
import json
import os
import shutil
import subprocess
import tempfile
import time

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
TOGETHER = 9   # cases of one process; of those that may hang, two


def said_by(tool):
    return "compute-sanitizer's %s: " % tool


def row(case, result):
    """A case's row: {"name", "expect", "values": {"word", "what"}, "tools": {TOOL: {"word", "what", ...}}}."""
    findings = result.get("findings") or []
    first = result.get("finding") or {}
    missing = [f["message"] for f in findings if f.get("kind") == "sanitizer_missing"]
    values = {"word": "silent", "what": ""}
    if result["verdict"] in ("compile_failed", "unsupported"):
        values = {"word": "failed", "what": first.get("message", "")[:200]}
    # A kernel whose values are right is `faulted` by what a tool reports.
    elif result["verdict"] != "passed" and "compute-sanitizer's " not in first.get("message", ""):
        values = {"word": "found", "what": first.get("kind") or result["verdict"], "message": first.get("message", "")[:300]}
    tools = {}
    for tool in TOOLS:
        mine = [f["message"] for f in findings if said_by(tool) in f["message"]]
        if mine:
            short = mine[0].split(": ", 1)[1].split(";")[0].replace("Error: ", "")
            tools[tool] = {"word": "found", "what": short[:80], "count": len(mine), "messages": [m[:300] for m in mine[:3]]}
        elif missing:
            tools[tool] = {"word": "failed", "what": missing[0].split("could not be run: ")[-1][:200]}
        else:
            tools[tool] = {"word": "silent", "what": ""}
    return {"name": case["name"], "expect": [] if case["expect"] == "-" else case["expect"].split(","), "tools": tools, "values": values}


def batches(cases):
    """Cases that one process can take, those that may hang last."""
    groups = collections.defaultdict(list)
    for case in cases:
        groups[case["shape"], case["mask"], case["config"], case["scales"], case["dist"], "deadlock" in case["expect"]].append(case)
    found = []
    for key, members in groups.items():
        size = 2 if key[-1] else TOGETHER
        found += [(key, members[i:i + size]) for i in range(0, len(members), size)]
    return sorted(found, key=lambda b: (b[0][-1], -len(b[1])))


def judge(asked, batch):
    (shape, mask, config, scales, dist, _), cases = batch
    left = asked.end - time.time()
    if left < 3:
        return [], "no time was left for %d cases" % len(cases)
    files = [os.path.join(asked.cases, c["file"]) for c in cases]
    command = [asked.warpsmith, "check", *files, "--backend", "gpu", "--sanitize", "--target", "sm_90", "--shapes", shape, "--mask", mask,
               "--json", "--fresh", "--out", tempfile.mkdtemp(dir=asked.folder) + "/run"]
    for option, word in (("--config", config), ("--scales", scales), ("--dist", dist)):
        command += [] if word == "-" else [option, word]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        record = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return [], "ended by the limit: " + ", ".join(c["name"] for c in cases)
    except ValueError:
        return [], "no record: " + done.stderr.strip()[-300:]
    if "error" in record:
        return [], record["error"].get("message", "error")[:300]
    by_file = {os.path.basename(r["candidate"]): r for r in record["results"]}
    return [row(c, by_file[c["file"]]) for c in cases if c["file"] in by_file], None


def last_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()[-1]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("cases", help="the folder of `cargo xtask mutants --write`")
    p.add_argument("results", help="where the results go, as JSON")
    p.add_argument("--warpsmith", default=shutil.which("warpsmith") or "warpsmith")
    p.add_argument("--jobs", type=int, default=3, help="processes at once")
    p.add_argument("--seconds", type=int, default=600, help="for all")
    asked = p.parse_args()
    asked.warpsmith, asked.cases, asked.end = os.path.abspath(asked.warpsmith), os.path.abspath(asked.cases), time.time() + asked.seconds
    with open(os.path.join(asked.cases, "cases.tsv"), newline="") as f:
        cases = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    head = {"device": last_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
            "date": datetime.date.today().isoformat(), "sanitizer": last_line(["compute-sanitizer", "--version"])}
    rows = {}
    with tempfile.TemporaryDirectory() as asked.folder, concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(judge, asked, b) for b in batches(cases)]):
            found, why = done.result()
            rows.update((r["name"], r) for r in found)
            print("%3d of %d%s" % (len(rows), len(cases), "; " + why if why else ""), flush=True)
            # Written each time: what a limit from outside cuts off is not lost.
            with open(asked.results + ".part", "w") as f:
                json.dump(dict(head, cases=[rows[c["name"]] for c in cases if c["name"] in rows]), f, indent=1)
            os.replace(asked.results + ".part", asked.results)


if __name__ == "__main__":
    main()
