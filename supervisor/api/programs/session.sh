# The same as session.bash for a shell that only knows POSIX: variables, directory, aliases and umask
# are kept, functions and options are not.
set --
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
__sp_keep() {
	case ${__sp_status+set} in set) return ;; esac
	trap '' HUP INT TERM
	__sp_status=$1
	set +evx
	unset __sp_text
	{
		printf '\0unset HOME LANG PATH\n'
		set
		export -p
		alias | sed 's/^alias //; s/^/alias /'
		printf 'umask %s\n' "$(umask)"
		printf 'command cd -- "$PWD"\n'
		printf '\0'
		trap - HUP INT TERM
	} >&2 2>/dev/null
}
. /dev/stdin >/dev/null 2>&1
\exec </dev/null
\unset __sp_status
\trap '__sp_keep $?' EXIT
