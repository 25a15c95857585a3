# SPDX-License-Identifier: Apache-2.0
# bash completion for gputrace

# Of lines, those that are plain names: compgen -W expands its words once more.
_gputrace_plain() {
	LC_ALL=C grep -xE '[A-Za-z0-9_.-]+'
}

_gputrace_tools() {
	gputrace --list 2>/dev/null | sed -n '/^Tools:/,$p' | awk 'NR > 1 { print $1 }' | _gputrace_plain
}

# Probes up to their first colon, as -l takes them.
_gputrace_probes() {
	gputrace --list 2>/dev/null | sed -n '2,/^$/p' | awk 'NF { sub(/:.*/, "", $1); print $1 }' | _gputrace_plain
}

_gputrace_options() {
	gputrace --help 2>/dev/null | grep -oE '^  (-[a-zA-Z], |    )--[a-z-]+' | grep -oE -- '--[a-z-]+' | _gputrace_plain
}

_gputrace() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} script= i

	COMPREPLY=()
	# "--format=x" comes as three words
	if [[ $word == = ]]; then
		word=
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			# CMD and its arguments
			if ((i + 1 == COMP_CWORD)); then
				mapfile -t COMPREPLY < <(compgen -c -- "$word")
			fi
			compopt -o default 2>/dev/null
			return
		fi
		case ${COMP_WORDS[i - 1]} in
		-e | -c | -p | -k | -d | -o | -f | --pid | --kernel | --duration | --output | --format | --emit | --rate | --socket) continue ;;
		esac
		[[ ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i]} == = || ${COMP_WORDS[i - 1]} == = ]] || script=${COMP_WORDS[i]}
		[[ ${COMP_WORDS[i]} == -e || ${COMP_WORDS[i]} == -c ]] && script=${COMP_WORDS[i]}
	done

	case $previous in
	-e | -c | -k | -d | --kernel | --duration | --rate) return ;;
	-p | --pid)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word")
		return
		;;
	-f | --format)
		mapfile -t COMPREPLY < <(compgen -W "text json" -- "$word")
		return
		;;
	-o | --output | --emit | --socket)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	-l | --list)
		compopt -o nospace 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$(_gputrace_probes)" -S : -- "$word")
		return
		;;
	esac
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "-e -c -p -k -d -o -f -l -v -h -V -- $(_gputrace_options)" -- "$word")
	elif [[ -z $script ]]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(
			compgen -W "$(_gputrace_tools)" -- "$word"
			compgen -f -X '!*.gt' -- "$word"
			compgen -d -- "$word"
		)
	fi
}

complete -F _gputrace gputrace
