#!/usr/bin/env python3
"""What compute-sanitizer's four tools and a comparison of values find of the mutation suite, on this machine's GPU.

    cargo xtask mutants --write DIR             (where there is Rust)
    mutants_sanitizer.py DIR RESULTS.json [--warpsmith FILE] [--jobs 12] [--seconds 900]
    cargo xtask mutants --table RESULTS.json

Each case is judged by `warpsmith check --backend gpu` alone (values), and then once for each tool by `check --sanitize`, with a small program of
that name first on the PATH: it puts the real compute-sanitizer's one tool in front of the worker and keeps its log. So a tool has a process and
a time limit of its own, whatever the others do, and what it says is read from its own log here. A log counts only where the worker has replied
that the launches were executed, or where it reports something: an empty log of a program that hung proves nothing.

Refuses to know: whether a report is right. Limits: one device, one run of each; the standard library only.
"""
import argparse
import concurrent.futures
import csv
import datetime
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
# Words of a line that reports something, as in crates/eval/src/bench/sanitize.rs.
REPORTS = ["Invalid __", "Misaligned", "Uninitialized", "Race reported", "Barrier error", "Illegal", "Out-of-range", "hazard detected"]
# The worker's reply was a run that ended, and then there was no log where the command line looks for it.
EXECUTED = "it left no log"
PLACES = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/usr/local/bin", "/opt/cuda/bin"]

# `memcheck` is the first of the four that the command line asks for; the log that it looks for has the summary's word and nothing else, so that it
# stops there. A session of its own, so that the tool has the time to write its summary when the command line ends its workers; each has a log of
# its own, for the command line keeps a second one ready. timeout kills the whole group, the tool and the worker behind it.
PUT_IN_FRONT = """#!/bin/sh
[ "$2" = memcheck ] || exit 1
echo SUMMARY > "$6"
shift 6
exec setsid --wait timeout -s KILL {seconds} {real} --tool {tool} --print-limit 20 --log-file "$WARPSMITH_TOOL_LOG.$$" "$@"
"""


def find_sanitizer(named):
    homes = [os.environ[v] for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    folders = [p for h in homes for p in (h + "/bin", h + "/compute-sanitizer")] + PLACES
    found = [named] if named else [shutil.which("compute-sanitizer")] + [f + "/compute-sanitizer" for f in folders]
    for path in found:
        if path and os.access(path, os.X_OK):
            return os.path.realpath(path)
    sys.exit("error: compute-sanitizer is not found; name it with --sanitizer, or run with --values-only")


def run(command, seconds, env=None):
    """Standard output, and what was wrong if it did not end by itself."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    try:
        out, err = p.communicate(timeout=seconds)
        return out, err, None
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        return "", "", "ended by its limit of %d s" % seconds


def check(asked, case, out, *more, env=None):
    command = [asked.warpsmith, "check", os.path.join(asked.cases, case["file"]), "--backend", "gpu", "--target", "sm_90", "--shapes",
               case["shape"], "--mask", case["mask"], "--json", "--fresh", "--out", out, *more]
    if case["config"] != "-":
        command += ["--config", case["config"]]
    text, err, why = run(command, asked.limit, env)
    if why:
        return None, why
    try:
        record = json.loads(text)
    except ValueError:
        return None, "no record: " + (err or text).strip()[-200:]
    if "error" in record:
        return None, record["error"].get("message", "error")[:200]
    if not record.get("results"):
        return None, "not applicable"
    return record["results"][0], None


def values(asked, case, folder):
    result, why = check(asked, case, os.path.join(folder, "values"))
    if why:
        return {"word": "failed", "what": why}
    if result["verdict"] == "passed":
        return {"word": "silent", "what": ""}
    finding = result.get("finding") or {}
    # What kept it from being executed says nothing of its values.
    if result["verdict"] in ("compile_failed", "unsupported") or result["gates"]["correctness"] == "unavailable":
        return {"word": "failed", "what": "%s: %s" % (result["verdict"], finding.get("message", ""))[:200]}
    return {"word": "found", "what": finding.get("code") or result["verdict"], "message": finding.get("message", "")[:300]}


def reports(log):
    """Each message of a log once, with its first detail."""
    lines = [l.rstrip()[9:] for l in log.splitlines() if l.startswith("=========")]
    found = []
    for i, line in enumerate(lines):
        if line.startswith(" ") and not line.startswith("  ") and any(r in line for r in REPORTS):
            detail = lines[i + 1].strip() if i + 1 < len(lines) and lines[i + 1].startswith("  ") else ""
            text = "%s; %s" % (line.strip(), detail)
            if text not in found:
                found.append(text)
    return found


def logs(stem):
    """All that the tool has written, once each log has its summary, and whether they have."""
    until = time.time() + 15
    while True:
        texts = []
        for path in sorted(glob.glob(glob.escape(stem) + ".*")):
            with open(path, errors="replace") as f:
                texts.append(f.read(1 << 20))
        whole = bool(texts) and all("SUMMARY" in t for t in texts)
        if whole or time.time() > until:
            return "\n".join(texts), whole
        time.sleep(0.1)


def tool(asked, case, name, folder):
    log = os.path.join(folder, name + ".log")
    env = dict(os.environ, PATH=os.path.join(asked.front, name) + os.pathsep + os.environ.get("PATH", ""), WARPSMITH_TOOL_LOG=log)
    result, why = check(asked, case, os.path.join(folder, name), "--sanitize", env=env)
    text, whole = logs(log)
    found = reports(text)
    if found:
        short = found[0].split(";")[0].replace("Error: ", "").replace("Warning: ", "")
        return {"word": "found", "what": short[:80], "count": len(found), "messages": [m[:300] for m in found[:3]]}
    unsupported = [l for l in text.splitlines() if "Error: " in l and "not supported" in l]
    if unsupported:
        return {"word": "failed", "what": unsupported[0].strip("= ")[:200]}
    if why:
        return {"word": "failed", "what": why}
    said = [f["message"] for f in result.get("findings", []) if f.get("kind") == "sanitizer_missing"]
    executed = any(EXECUTED in m for m in said)
    if not executed or not whole:
        what = said[0].split("could not be run: ")[-1] if said and not executed else "no complete log" if executed else "it was not started"
        return {"word": "failed", "what": what[:200], "log": text[-300:]}
    summaries = [l.strip("= ") for l in text.splitlines() if "SUMMARY" in l]
    hits = [l.strip("= ") for l in text.splitlines() if "Program hit" in l]
    # The driver's own word on a fault (its errors 700 and up) whose cause the tool has not seen.
    faults = [l for l in hits if "(error 7" in l]
    if faults:
        return {"word": "failed", "what": ("fault: " + faults[0].split(" on CUDA")[0])[:120], "log": text[:600]}
    # Other errors of the driver are questions of the worker's that it answers with no: memcheck counts them.
    counted = sum(int(n) for l in summaries for n in re.findall(r": (\d+) (?:error|hazard)", l))
    if counted <= len(hits):
        return {"word": "silent", "what": ""}
    # A report of a form that is not known here: shown, not hidden.
    return {"word": "failed", "what": "; ".join(summaries)[:120], "log": text[:600]}


def judge(asked, case):
    folder = tempfile.mkdtemp(prefix="mutants-", dir=asked.folder)
    row = {"name": case["name"], "expect": [] if case["expect"] == "-" else case["expect"].split(","), "tools": {}}
    started = time.time()
    if started > asked.end:
        late = {"word": "failed", "what": "no time was left"}
        row.update(values=late, tools={} if asked.values_only else {t: late for t in TOOLS})
        return row
    row["values"] = values(asked, case, folder)
    if not asked.values_only:
        for name in TOOLS:
            over = time.time() > asked.end
            row["tools"][name] = {"word": "failed", "what": "no time was left"} if over else tool(asked, case, name, folder)
    row["seconds"] = round(time.time() - started, 1)
    shutil.rmtree(folder, ignore_errors=True)
    return row


def version(command):
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        return text.splitlines()[-1] if text else "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("cases", help="the folder of `cargo xtask mutants --write`")
    p.add_argument("results", help="where the results go, as JSON")
    p.add_argument("--warpsmith", default=shutil.which("warpsmith") or "warpsmith")
    p.add_argument("--sanitizer", help="compute-sanitizer, where it is not found by itself")
    p.add_argument("--values-only", action="store_true", help="without the tools")
    p.add_argument("--jobs", type=int, default=12, help="processes at once")
    p.add_argument("--limit", type=int, default=100, help="seconds for one process")
    p.add_argument("--tool-seconds", type=int, default=45, help="seconds for a tool and the worker behind it")
    p.add_argument("--seconds", type=int, default=900, help="no new process after that many seconds")
    p.add_argument("--only", help="cases whose names contain this")
    asked = p.parse_args()
    asked.warpsmith, asked.cases = os.path.abspath(asked.warpsmith), os.path.abspath(asked.cases)
    asked.end = time.time() + asked.seconds
    real = None if asked.values_only else find_sanitizer(asked.sanitizer)
    with open(os.path.join(asked.cases, "cases.tsv"), newline="") as f:
        cases = [c for c in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE) if not asked.only or asked.only in c["name"]]
    head = {"device": version(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
            "date": datetime.date.today().isoformat(), "sanitizer": version([real, "--version"]) if real else "no compute-sanitizer"}
    with tempfile.TemporaryDirectory() as folder:
        asked.folder, asked.front = folder, os.path.join(folder, "front")
        for name in TOOLS if real else []:
            path = os.path.join(asked.front, name, "compute-sanitizer")
            os.makedirs(os.path.dirname(path))
            with open(path, "w") as f:
                f.write(PUT_IN_FRONT.format(seconds=asked.tool_seconds, real=real, tool=name))
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        rows = {}
        with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
            todo = {pool.submit(judge, asked, c): c["name"] for c in cases}
            for done in concurrent.futures.as_completed(todo):
                row = done.result()
                rows[row["name"]] = row
                words = " ".join("%s:%s" % (t, s["word"]) for t, s in row["tools"].items())
                print("%3d/%d %-44s values:%s %s (%.1f s)" % (len(rows), len(cases), row["name"], row["values"]["word"], words,
                                                           row.get("seconds", 0)), flush=True)
                # Written each time: what a limit from outside cuts off is not lost.
                kept = [rows[c["name"]] for c in cases if c["name"] in rows]
                with open(asked.results + ".part", "w") as f:
                    json.dump(dict(head, cases=kept), f, indent=1)
                os.replace(asked.results + ".part", asked.results)


if __name__ == "__main__":
    main()
