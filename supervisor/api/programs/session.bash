# One run of a shell session, see execd_session.c: the code in $1 … $10, what the run before left on
# stdin. The code has /dev/null as its stdin and our stdout for both of its outputs; what it leaves
# goes to our stderr, between two NULs.
__sp_text=$1$2$3$4$5$6$7$8$9${10}
set --
# So that a signal takes the way of an exit.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
# Much of it cannot be set, which is no matter: it is what every shell has.
. /dev/stdin >/dev/null 2>&1
exec </dev/null
unset __sp_status __sp_options BASH_EXECUTION_STRING
__sp_keep() {
	{
		case ${__sp_status+set} in set) return ;; esac
		__sp_status=$1 __sp_options=$-
		set +evx
		shift
	} 2>/dev/null
	unset __sp_text
	unset -f __sp_keep
	{
		builtin printf '\0'
		builtin shopt -p
		builtin printf 'command cd -- %q\n' "$PWD"
		builtin umask -p
		builtin declare -p
		builtin declare -f
		builtin declare -F
		builtin alias -p
		builtin trap -p
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
	} >&2 2>/dev/null
	__sp_keep() { :; }
}
trap '__sp_keep $? "$@"' EXIT
# Its own descriptors are put aside where no child inherits them, and are back after it, however it
# ends.
eval "$__sp_text" 2>&1
__sp_keep $? "$@"
# A trap of the code's own still comes.
exec 2>&1
exit "$__sp_status"
