/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of commands: a name, and what gpuprobectl --help says about it. It gives main.c the
 * table and the help text, and declares command_NAME(), which has a file of its own. Completion
 * asks the program (OPTION_WORDS in options.c), so it needs no list.
 */

#define CTL_COMMANDS(COMMAND)                                                                     \
	COMMAND(attach,                                                                           \
		"attach FILE       attach the programs of an eBPF object; prints the ids\n"       \
		"  attach FILE -- CMD  run CMD with them, print the maps at its end, detach")     \
	COMMAND(build, "build FILE.bpf.c  compile an eBPF object for attach")                     \
	COMMAND(detach, "detach ID...      remove attachments")                                   \
	COMMAND(list, "list              what is attached")                                       \
	COMMAND(status, "status            state of the daemon")                                  \
	COMMAND(why, "why               what was probed and what was not, and why")               \
	COMMAND(kernel, "kernel list       kernels that are or were probed, or missed\n"          \
			"  kernel show NAME  instructions of a kernel that have memory probes")   \
	COMMAND(program, "program show NAME registers, memory and engines of a program")          \
	COMMAND(map, "map list          maps of attached objects\n"                               \
		     "  map dump MAP      contents of a map\n"                                    \
		     "  map update MAP    set an element of a map; also: delete\n"                \
		     "  map export MAP    show a map among the metrics; also: unexport, exports") \
	COMMAND(metrics, "metrics           numbers of the daemon and of exported maps")          \
	COMMAND(ring, "ring read MAP     records of a ring")                                      \
	COMMAND(run, "run FILE          run a program as a kernel of its own")                    \
	COMMAND(log, "log               what programs print")                                     \
	COMMAND(trace,                                                                            \
		"trace             what programs do: calls of the driver, ioctls, kernels\n"      \
		"  trace report FILE what was in a trace")                                        \
	COMMAND(hook, "hook list         places in the kernel at which a trace can look\n"        \
		      "  hook test NAME    whether one is hit\n"                                  \
		      "  hook status       which are at work, and why others cannot be")          \
	COMMAND(shim, "shim enable       have the library in every program; also: disable, "      \
		      "status, cdi")                                                              \
	COMMAND(doctor, "doctor            what is missing here, and what to do about it")        \
	COMMAND(cache, "cache             what is kept on the disk; also: list, clear")           \
	COMMAND(pass, "pass list         passes that the daemon runs\n"                           \
		      "  pass test FILE    run passes on a PTX file, here")
