# bash completion for sandpool(1): verbs and options are asked from the program itself, so that
# this file never lags behind it. Install as /usr/share/bash-completion/completions/sandpool.

# Names from `sandpool help --complete`, one a line, without their explanations.
_sandpool_names() {
	sandpool help --complete "$@" 2>/dev/null | cut -f1
}

# The first word that is neither an option nor an option's value: the verb.
_sandpool_verb() {
	local i skip=0
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--socket | --api-key-file | --token-file | --tls-ca | --redis | --redis-* | --prefix) skip=1 ;;
		-*) ;;
		*)
			if ((!skip)); then
				printf '%s\n' "${COMP_WORDS[i]}"
				return
			fi
			skip=0
			;;
		esac
	done
}

_sandpool() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb words=''
	COMPREPLY=()
	verb=$(_sandpool_verb)

	case $before in
	--pool | -p) words=$(sandpool pool ls -q 2>/dev/null) ;;
	--prefer-host) words=$(sandpool hosts -q 2>/dev/null) ;;
	--state) words='creating idle leased killing' ;;
	--policy) words='fail_fast wait create retry_next retry_next_then_create' ;;
	--file | -f | --api-key-file | --token-file | --tls-ca | --redis-*file | --redis-ca | \
		--redis-cert | --redis-key | --config | --socket | -c | --diff | --check | --output)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	-o)
		compopt -o filenames 2>/dev/null
		if [[ $verb == diff ]]; then
			mapfile -t COMPREPLY < <(compgen -f -- "$current")
		else
			mapfile -t COMPREPLY < <(compgen -d -- "$current")
		fi
		return
		;;
	--bind | -b | --overlay)
		compopt -o nospace -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$current")
		return
		;;
	esac

	if [[ -z $words && $current == -* ]]; then
		words=$(_sandpool_names ${verb:+"$verb"} | grep '^-')
		words=${words//=/}
	elif [[ -z $words && -z $verb ]]; then
		words=$(_sandpool_names | grep -v '^-')
	elif [[ -z $words ]]; then
		case $verb in
		pool)
			case $before in
			show | resize | drain | resume | destroy) words=$(sandpool pool ls -q 2>/dev/null) ;;
			*) words='ls show resize drain resume destroy' ;;
			esac
			;;
		acquire) words=$(sandpool pool ls -q 2>/dev/null) ;;
		hosts)
			case $before in
			drain | resume) words=$(sandpool hosts -q 2>/dev/null) ;;
			*) words='ls drain resume' ;;
			esac
			;;
		config) words='check dump reference' ;;
		help) words=$(_sandpool_names | grep -v '^-') ;;
		cp)
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$current")
			return
			;;
		files) [[ $before != files ]] || words='ls stat rm mkdir mv' ;;
		exec | renew | release | inspect | diff | commit)
			words=$(sandpool ls -q --state leased 2>/dev/null)
			;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _sandpool -o bashdefault -o default sandpool
