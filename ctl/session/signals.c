/* SPDX-License-Identifier: Apache-2.0 */

/* Signals of commands that handle them between two steps (session.h). */

#include <signal.h>
#include <sys/signalfd.h>

#include "session.h"

int session_signals(sigset_t *endingp, bool child) {
	struct sigaction hangup;
	sigset_t signals;

	sigemptyset(endingp);
	sigaddset(endingp, SIGINT);
	sigaddset(endingp, SIGTERM);
	sigaddset(endingp, SIGQUIT);
	if (!sigaction(SIGHUP, NULL, &hangup) &&
	    hangup.sa_handler != SIG_IGN) /* as it is under nohup */
		sigaddset(endingp, SIGHUP);
	signals = *endingp;
	if (child)
		sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	if (child)
		signal(SIGCHLD, SIG_DFL); /* where whoever started us ignores it, nobody would say
					     that CMD has ended */
	return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}
