# SPDX-License-Identifier: Apache-2.0
# bash completion for gpuprobectl

# Of lines, those that are plain names: others choose them, and compgen -W expands its words once more, command substitution included.
_gpuprobectl_plain() {
	LC_ALL=C grep -xE '[A-Za-z0-9_.:@%+,/-]+'
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
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= noun= i
	local global="--json --pretty --session --socket --help --version"

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
	--export | --host-target | --as | --help-text | --unit | --label | --bucket)
		return
		;;
	--merge)
		mapfile -t COMPREPLY < <(compgen -W "sum latest" -- "$word")
		return
		;;
	--engine)
		mapfile -t COMPREPLY < <(compgen -W "auto ptx sass" -- "$word")
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
	--kernel | --program | --comm | --grid | --block | --device | --threads | --ring-size | --instruction | --type | --count | -n)
		return
		;;
	esac

	case $command in
	"")
		mapfile -t COMPREPLY < <(compgen -W "attach detach list status why kernel program map metrics ring run log trace hook pass shim doctor cache $global" -- "$word")
		;;
	attach)
		if [[ $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--kernel --program --point --spaces --pid --comm --exe --uid
				--engine --threads --ring-size --shared --host-target --export $global" -- "$word")
		else
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.o' -- "$word")
		fi
		;;
	run)
		if [[ $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--grid --block --count --device --program --threads --ring-size $global" -- "$word")
		else
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.o' -- "$word")
		fi
		;;
	detach)
		mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 1 list) --all $global" -- "$word")
		;;
	why)
		mapfile -t COMPREPLY < <(compgen -W "--pid --kernel $global" -- "$word")
		;;
	kernel)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "list show $global" -- "$word")
		elif [[ $noun == list ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--pid $global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 1 kernel list) --instruction $global" -- "$word")
		fi
		;;
	program)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "show $global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 3 list) $global" -- "$word")
		fi
		;;
	map)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "list dump update delete export unexport exports $global" -- "$word")
		elif [[ $noun == list ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--wide $global" -- "$word")
		elif [[ $noun == dump ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 3 map list)
				--per-process --merge --nonzero --raw $global" -- "$word")
		elif [[ $noun == update || $noun == delete ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 3 map list) $global" -- "$word")
		elif [[ $noun == unexport ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 2 map exports) $global" -- "$word")
		elif [[ $noun == export ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 3 map list)
				--as --help-text --type --unit --label --bucket --sm --merge --nonzero $global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$global" -- "$word")
		fi
		;;
	metrics)
		mapfile -t COMPREPLY < <(compgen -W "--prometheus $global" -- "$word")
		;;
	ring)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "read $global" -- "$word")
		elif [[ $noun == read ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_rings)
				--follow --count --type --raw $global" -- "$word")
		fi
		;;
	pass)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "list test $global" -- "$word")
		elif [[ $noun == test && $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--pass --kernel --pass-dir $global" -- "$word")
		elif [[ $noun == test ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.ptx' -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$global" -- "$word")
		fi
		;;
	doctor)
		mapfile -t COMPREPLY < <(compgen -W "--only --root $global" -- "$word")
		;;
	cache)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "status list clear $global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$global" -- "$word")
		fi
		;;
	shim)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "enable disable status cdi $global" -- "$word")
		elif [[ ( $noun == enable || $noun == cdi ) && $word != -* ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.so' -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "--root $global" -- "$word")
		fi
		;;
	trace)
		if [[ $noun == report && $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--summary --top --timeline --gaps --layers --leaks --latency --kernels --ctxsw --errors --histogram --all --pid --events --from --to --format --output $global" -- "$word")
		elif [[ $noun == report ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$word")
		elif [[ $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--pid --follow --events --output --save --format --count --hist --summary --interval --discover
				--min-dur --errors --sample --rate --cgroup --uid --comm --stacks --kernel --gpu --ctxsw --backend --probe --profile --no-extras
				--buffer --duration $global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "report" -- "$word"; compgen -c -- "$word")
		fi
		;;
	hook)
		if [[ -z $noun ]]; then
			mapfile -t COMPREPLY < <(compgen -W "list test status $global" -- "$word")
		elif [[ $noun == status ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$global" -- "$word")
		else
			mapfile -t COMPREPLY < <(compgen -W "$(_gpuprobectl_column 1 hook list) $global" -- "$word")
		fi
		;;
	log)
		mapfile -t COMPREPLY < <(compgen -W "--follow --object $global" -- "$word")
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W "$global" -- "$word")
		;;
	esac
}

complete -F _gpuprobectl gpuprobectl
