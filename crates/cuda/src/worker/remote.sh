# Fed to `sh` on another machine, on its standard input, by remote.rs. The whole is one function, so that the shell has read all of it
# before anything runs: what follows on the same stream is then for `read`, `head` and the worker. The other side sends nothing unless a
# line of ours has asked for it, so that nobody here reads too far.
warpsmith_remote() {
  part=@MARK@
  mark="@ws:$part@"
  say() { printf '\n%s %s\n' "$mark" "$*"; }
  umask 077
  base=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  cache=$base/warpsmith
  if [ -z "$base" ] || ! mkdir -p "$cache/worker" 2>/dev/null || [ ! -w "$cache/worker" ]; then
    cache=$(mktemp -d "${TMPDIR:-/tmp}/warpsmith-XXXXXX") || { say broken "no folder can be written there"; return 1; }
    mkdir -p "$cache/worker"
    trap 'rm -rf "$cache"' EXIT
  fi
  dir=$cache/worker
  sum() {
    if command -v sha256sum >/dev/null 2>&1; then sha256sum <"$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then shasum -a 256 <"$1" | cut -d ' ' -f 1
    else echo unknown; fi
  }
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | tr ' ' '-')
  say hello "$(uname -s)" "$(uname -m)" "${libc:-other}"
  set --
  while IFS= read -r line; do
    op=${line%% *}
    rest=${line#* }
    a=${rest%% *}
    b=${rest#* }
    case $op in
    word)
      # One more word of the command that is to be started.
      case $rest in @cache/*) rest=$cache/${rest#@cache/} ;; esac
      set -- "$@" "$rest" ;;
    have)
      # Binaries by size, what was built there by name alone.
      if [ -x "$dir/$a" ] && { [ "$b" = - ] || [ "$(($(wc -c <"$dir/$a")))" = "$b" ]; }; then
        touch "$dir/$a" 2>/dev/null
        say have
      else
        say want
      fi ;;
    put)
      new=$dir/.new.$$
      say ready
      head -c "$b" >"$new"
      got=$(sum "$new")
      if [ "$(($(wc -c <"$new")))" = "$b" ] && { [ "$got" = "$a" ] || [ "$got" = unknown ]; }; then
        chmod 700 "$new" && mv -f "$new" "$dir/$a"
        # The newest few stay.
        ls -t "$dir" | tail -n +7 | while read -r old; do rm -f "${dir:?}/$old"; done
        say stored
      else
        rm -f "$new"
        say broken "what arrived is not what was sent: is the disk of $dir full?"
      fi ;;
    build)
      PATH=$PATH:${HOME:-}/.cargo/bin
      if ! command -v cargo >/dev/null 2>&1; then
        say broken "there is no cargo there"
      else
        src=$cache/build.$$
        rm -rf "$src"
        mkdir -p "$src"
        say ready
        head -c "$b" | tar -xf - -C "$src"
        if (cd "$src" && cargo build --release --bin warpsmith --target-dir "$src/target") >"$cache/build.log" 2>&1 </dev/null; then
          chmod 700 "$src/target/release/warpsmith" && mv -f "$src/target/release/warpsmith" "$dir/$a"
          say stored
        else
          say broken "$(tail -n 3 "$cache/build.log" | tr '\n' ' ')"
        fi
        rm -rf "$src"
      fi ;;
    start)
      if first=$("$dir/$a" --version 2>&1 </dev/null); then
        say started
        "$dir/$a" "$@"
        say ended "$?"
        return 0
      fi
      rm -f "$dir/$a"
      say unrunnable "$(printf '%s' "$first" | head -n 2 | tr '\n' ' ')" ;;
    plain)
      if command -v "$1" >/dev/null 2>&1; then
        say started
        "$@"
        say ended "$?"
        return 0
      fi
      say missing "$1" ;;
    *) say broken "no such step" ;;
    esac
  done
}
warpsmith_remote; exit
