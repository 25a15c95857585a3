/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The gate: a lock between launches and patching, in a process with the sanitizer engine. While
 * modules are patched or unpatched, no launch is on its way. (Launching a module during its
 * patching makes the GPU fault.) Launches are frequent, so each thread has a record of its own, and
 * only that thread writes it. Closing the gate makes all threads see that (membarrier) and waits
 * for them.
 */

#include <stdbool.h>
#include <stdint.h>

/* A cache line of its own: others' launches do not touch it. */
struct gate_thread {
	_Alignas(64) struct gate_thread *next;
	unsigned depth; /* of launches that this thread is in: callbacks may launch, too */
	bool used;
};

extern __thread struct gate_thread *gate_mine
	__attribute__((visibility("hidden"), tls_model("initial-exec")));
extern bool gate_closed __attribute__((visibility("hidden")));
extern bool gate_fenced __attribute__((visibility("hidden"))); /* there is no membarrier */

/* Once, before the first launch. */
void gate_start(void);

/* For gate_enter(): this thread's record; waits for the gate. */
struct gate_thread *gate_register(void);
void gate_wait(struct gate_thread *thread);

/* Before the call that launches. */
static inline void gate_enter(void) {
	struct gate_thread *thread = gate_mine;

	if (__builtin_expect(!thread, 0))
		thread = gate_register();
	__atomic_store_n(&thread->depth, thread->depth + 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&gate_fenced, __ATOMIC_RELAXED), 0))
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&gate_closed, __ATOMIC_ACQUIRE), 0))
		gate_wait(thread);
}

/* Behind it. */
static inline void gate_leave(void) {
	struct gate_thread *thread = gate_mine;

	__atomic_store_n(&thread->depth, thread->depth - 1, __ATOMIC_RELEASE);
}

/* Is this thread in a launch, or has it closed the gate? Then it cannot close it. */
bool gate_is_inside(void);

/*
 * Closes the gate; one thread at a time. false: this thread is in a launch, or others were till
 * then, or one that is in a launch waits for this one (gate_hurry()): it is open.
 */
bool gate_close(uint64_t until_ms);
void gate_open(void);

/*
 * Around waiting, in a launch perhaps, for what the thread has that closes the gate: it does not go
 * on waiting for the launch.
 */
void gate_hurry(bool begin);
bool gate_is_hurried(void);
