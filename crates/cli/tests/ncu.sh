#!/bin/sh
# A stand-in for ncu: starts what stands behind it as ncu does, and prints the pages of a report that lie beside the link to it.
here=$(dirname "$0")
if [ "$1" = --version ]; then echo 'Version 2025.3.1.0 (build 1)'; exit 0; fi
if [ "$1" = --import ]; then
    case "$*" in *'--page raw') cat "$here/raw.csv" ;; *) cat "$here/source.csv" ;; esac
    exit 0
fi
while [ $# -gt 0 ]; do
    case $1 in
        --log-file) log=$2; shift 2 ;;
        --export) report=$2; shift 2 ;;
        --force-overwrite) shift ;;
        --*) shift 2 ;;
        *) break ;;
    esac
done
"$@"
if [ -f "$here/denied" ]; then cat "$here/denied" > "$log"; exit 1; fi
echo '==PROF== Disconnected' > "$log"
echo a report > "$report.ncu-rep"
