# What one run of a shell session does before its code, which is in __sp_text; the line behind that is
# in execd_session.c. On stdin is what the run before left; what this one leaves goes to stderr,
# between two NULs.
set --
# So that a signal takes the way of an exit.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
# Defined before aliases of the code's can mean something else by its words. What would keep the next
# run from beginning, or from ending, is left here: functions in the place of builtins that are used
# around the code, what is run before every command, and a text that cannot be unset. From where its
# traps are written a signal cuts nothing off; one that comes before that begins it again, by an exit,
# which does not undo a redirection of several commands.
__sp_keep() {
	case ${__sp_status+set} in set) return ;; esac
	__sp_options=${__sp_options-$-}
	unset -f builtin
	builtin unset -f : . eval exec exit export readonly return set shift source trap unset
	builtin trap - DEBUG RETURN
	builtin set +evxt
	builtin printf '\0__sp_traps() {\n:\n' >&2
	builtin trap -p >&2
	builtin trap '' HUP INT TERM
	builtin printf '}\n' >&2
	{
		__sp_status=$1
		builtin shift
		builtin unset -v __sp_text || return
		builtin unset -f __sp_keep || return
	} 2>/dev/null
	{
		builtin printf 'unset -v HOME LANG PATH\n'
		builtin shopt -p
		builtin printf 'command cd -- %q\n' "$PWD"
		builtin umask -p
		builtin declare -p
		builtin declare -f
		builtin declare -F
		builtin alias -p
		builtin printf '__sp_traps; \\unset -f __sp_traps\n'
		case $# in
		0) ;;
		*)
			builtin printf 'set --'
			builtin printf ' %q' "$@"
			builtin printf '\n'
			;;
		esac
		builtin set +o
		case $__sp_options in *v*) builtin printf 'set -v\n' ;; esac
		case $__sp_options in *x*) builtin printf 'set -x\n' ;; esac
		case $__sp_options in *e*) builtin printf 'set -e\n' ;; esac
		builtin printf '\0'
		builtin trap - HUP INT TERM
	} >&2 2>/dev/null
	__sp_keep() { :; }
}
# Much of it cannot be set, which is no matter: it is what every shell has.
. /dev/stdin >/dev/null 2>&1
\exec </dev/null
\unset __sp_status __sp_options BASH_EXECUTION_STRING
\trap '__sp_keep $? "$@"' EXIT
