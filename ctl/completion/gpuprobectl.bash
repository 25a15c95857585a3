# SPDX-License-Identifier: Apache-2.0
# bash completion for gpuprobectl

# Of lines, those that are plain names: others choose them, and compgen -W expands its words once more, command substitution included.
_gpuprobectl_plain() {
	LC_ALL=C grep -xE '[A-Za-z0-9_.:@%+,/-]+'
}

# What may come behind these words, a word a line; an option that wants a value ends with "=".
_gpuprobectl_words() {
	gpuprobectl "$@" --words 2>/dev/null | LC_ALL=C grep -xE '(--)?[a-z-]+=?'
}

# A column of a table that gpuprobectl prints, without its header; nothing if there is no daemon.
_gpuprobectl_column() {
	gpuprobectl "${@:2}" 2>/dev/null | awk -v column="$1" 'NR > 1 { print $column }' | _gpuprobectl_plain
}

# Names of the maps that are rings.
_gpuprobectl_rings() {
	gpuprobectl map list 2>/dev/null | awk '$4 ~ /ring|perf_event/ { print $3 }' | _gpuprobectl_plain
}

# Profiles of the host's own.
_gpuprobectl_profiles() {
	ls /etc/gpuprobe/profiles 2>/dev/null | sed -n 's/\.conf$//p' | _gpuprobectl_plain
}

# What trace -e knows of calls.
_gpuprobectl_classes="launch memory transfer sync module graph stream event context device ipc query other all"

_gpuprobectl() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= noun= words ending= i

	COMPREPLY=()
	# "--kernel=x" comes as three words
	if [[ $word == = ]]; then
		word=
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		[[ ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i]} == = || ${COMP_WORDS[i - 1]} == = ]] && continue
		[[ ${COMP_WORDS[i - 1]} == --socket ]] && continue
		if [[ -z $command ]]; then
			command=${COMP_WORDS[i]}
		elif [[ -z $noun ]]; then
			noun=${COMP_WORDS[i]}
		fi
	done

	# CMD and its arguments
	if [[ $command == attach && " ${COMP_WORDS[*]:1:COMP_CWORD - 1} " == *" -- "* ]]; then
		compopt -o filenames 2>/dev/null
		if [[ $previous == -- ]]; then
			mapfile -t COMPREPLY < <(compgen -c -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -f -- "$word")
		fi
		return
	fi

	case $previous in
	--profile)
		mapfile -t COMPREPLY < <(compgen -W "bench dev driver latency launches memory prod $(_gpuprobectl_profiles)" -- "$word")
		return
		;;
	--pass)
		mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 2 pass list)" -- "$word")
		return
		;;
	--pass-dir | --root)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		return
		;;
	--socket | --exe)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--uid)
		mapfile -t COMPREPLY < <(compgen -u -- "$word")
		return
		;;
	--pid)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word")
		return
		;;
	--object)
		mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 2 list | sort -u)" -- "$word")
		return
		;;
	--merge)
		mapfile -t COMPREPLY < <(compgen -W "sum latest" -- "$word")
		return
		;;
	--engine)
		mapfile -t COMPREPLY < <(compgen -W "auto ptx sanitizer" -- "$word")
		return
		;;
	--backend)
		mapfile -t COMPREPLY < <(compgen -W "auto shim bpf cupti" -- "$word")
		return
		;;
	--gpu)
		mapfile -t COMPREPLY < <(compgen -W "events cupti" -- "$word")
		return
		;;
	--format)
		mapfile -t COMPREPLY < <(compgen -W "text jsonl jsonl-seed chrome perfetto folded csv table raw" -- "$word")
		return
		;;
	--events | -e)
		mapfile -t COMPREPLY < <(compgen -W "$_gpuprobectl_classes $(_gpuprobectl_column 1 hook list)" -- "$word")
		return
		;;
	--cgroup)
		mapfile -t COMPREPLY < <(compgen -d -- "${word:-/sys/fs/cgroup/}")
		return
		;;
	--output | -o)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	-p)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word")
		return
		;;
	--spaces)
		mapfile -t COMPREPLY < <(compgen -W "global shared local const param generic" -- "$word")
		return
		;;
	--point)
		mapfile -t COMPREPLY < <(compgen -W "kprobe/ kretprobe/ memcapture/ kprobe/dev: kretprobe/dev: memcapture/dev: kprobe/__memcapture" -- "$word")
		return
		;;
	--kernel | -n)
		return
		;;
	esac

	# what the program itself says: its commands, their verbs and options
	words=$(_gpuprobectl_words ${command:+"$command"})
	[[ $command == trace ]] && words+=$'\nreport'
	if [[ -n $noun ]] && grep -qxF -e "$noun" <<<"$words"; then
		words=$(_gpuprobectl_words "$command" "$noun")
	fi
	[[ -n $noun ]] && words=$(grep '^-' <<<"$words")
	grep -qxF -e "$previous=" <<<"$words" && return # a value of which nothing is known
	words=${words//=/}

	# arguments
	case "$command $noun" in
	"attach "* | "run "*)
		ending=.o
		;;
	"build "*)
		ending=.c
		;;
	"pass test")
		ending=.ptx
		;;
	"shim enable" | "shim cdi")
		ending=.so
		;;
	"trace report")
		ending=*
		;;
	"trace "*)
		[[ $word == -* ]] || mapfile -t COMPREPLY < <(compgen -W "report" -- "$word"; compgen -c -- "$word")
		;;
	"detach "*)
		words+=" $(_gpuprobectl_column 1 list)"
		;;
	"kernel show")
		words+=" $(_gpuprobectl_column 1 kernel list)"
		;;
	"program show")
		words+=" $(_gpuprobectl_column 3 list)"
		;;
	"map dump" | "map update" | "map delete" | "map export")
		words+=" $(_gpuprobectl_column 3 map list)"
		;;
	"map unexport")
		words+=" $(_gpuprobectl_column 2 map exports)"
		;;
	"ring read")
		words+=" $(_gpuprobectl_rings)"
		;;
	"hook list" | "hook test")
		words+=" $(_gpuprobectl_column 1 hook list)"
		;;
	esac
	if [[ -n $ending && $word != -* ]]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X "!*$ending" -- "$word")
	elif ((!${#COMPREPLY[@]})); then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	fi
}

complete -F _gpuprobectl gpuprobectl
