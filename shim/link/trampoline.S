/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trampolines (trampoline.h), each TRAMPOLINE_STRIDE bytes, and trace_call.
 *
 * A trampoline compares the generations of the two interest pages with those that were last looked at (trace_watch, interest-page.h), and jumps to its target.
 * There is no frame then: the target returns to the caller. If a generation has changed, or a trace is on, it jumps to trace_call:
 * trace_begin says whether trace_end is to be called behind the target. If not, trace_call jumps to the target, too.
 *
 * The unwinder calls trace_personality for a frame of trace_call, at an exception or the end of a thread.
 */
#include "shim/trace/trace-frame.h"
#include "trampoline.h"

#if defined(__x86_64__)

/* rax is free: it is an argument only of functions with variable arguments, and the driver has none. */
.macro TRAMPOLINE index
	endbr64
	movq	trace_watch(%rip), %rax
	movl	(%rax), %eax
	cmpl	trace_watch+8(%rip), %eax
	jne	1f
	movq	trace_watch+16(%rip), %rax
	movl	(%rax), %eax
	cmpl	trace_watch+24(%rip), %eax
	jne	1f
	jmp	*trampoline_targets+8*(\index)(%rip)
1:	movl	$(\index), %eax
	jmp	trace_call
	.balign	TRAMPOLINE_STRIDE
.endm

#elif defined(__aarch64__)

.macro TRAMPOLINE index
	hint	#34
	adrp	x17, trace_watch
	add	x17, x17, :lo12:trace_watch
	ldr	x16, [x17]
	ldr	w16, [x16]
	ldr	w9, [x17, #8]
	cmp	w16, w9
	b.ne	1f
	ldr	x16, [x17, #16]
	ldr	w16, [x16]
	ldr	w9, [x17, #24]
	cmp	w16, w9
	b.ne	1f
	adrp	x16, trampoline_targets+8*(\index)
	ldr	x16, [x16, :lo12:trampoline_targets+8*(\index)]
	br	x16
1:	mov	w16, #(\index)
	b	trace_call
	.balign	TRAMPOLINE_STRIDE
.endm

#else
#error "no trampolines for this architecture"
#endif

	.text
	.balign	128
	.globl	trampolines
	.hidden	trampolines
trampolines:
	.cfi_startproc
.macro FUNCTION index, name
	.type	\name, %function
\name:
	TRAMPOLINE \index
	.size	\name, .-\name
	.set	next, \index+1
.endm
#include "functions.S.inc"
	.altmacro
.rept DRIVER_FUNCTION_SPARE
	TRAMPOLINE %next
	.set	next, next+1
.endr
	.noaltmacro
	.cfi_endproc
	.globl	trampolines_end
	.hidden	trampolines_end
trampolines_end:

	.globl	trace_call
	.hidden	trace_call
	.type	trace_call, %function

#if defined(__x86_64__)

trace_call:
	.cfi_startproc
	.cfi_personality 0x1b, trace_personality
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$TRACE_FRAME_SIZE, %rsp
	movq	%rdi, TRACE_FRAME_WORDS(%rsp)
	movq	%rsi, TRACE_FRAME_WORDS+8(%rsp)
	movq	%rdx, TRACE_FRAME_WORDS+16(%rsp)
	movq	%rcx, TRACE_FRAME_WORDS+24(%rsp)
	movq	%r8, TRACE_FRAME_WORDS+32(%rsp)
	movq	%r9, TRACE_FRAME_WORDS+40(%rsp)
	movaps	%xmm0, TRACE_FRAME_FLOATS(%rsp)
	movaps	%xmm1, TRACE_FRAME_FLOATS+16(%rsp)
	movaps	%xmm2, TRACE_FRAME_FLOATS+32(%rsp)
	movaps	%xmm3, TRACE_FRAME_FLOATS+48(%rsp)
	movaps	%xmm4, TRACE_FRAME_FLOATS+64(%rsp)
	movaps	%xmm5, TRACE_FRAME_FLOATS+80(%rsp)
	movaps	%xmm6, TRACE_FRAME_FLOATS+96(%rsp)
	movaps	%xmm7, TRACE_FRAME_FLOATS+112(%rsp)
	movl	%eax, TRACE_FRAME_INDEX(%rsp)
	movq	%rsp, %rdi
	call	trace_begin
	movl	TRACE_FRAME_INDEX(%rsp), %r10d
	leaq	trampoline_targets(%rip), %r11
	movq	(%r11,%r10,8), %r11
	testq	%rax, %rax
	movq	TRACE_FRAME_WORDS(%rsp), %rdi
	movq	TRACE_FRAME_WORDS+8(%rsp), %rsi
	movq	TRACE_FRAME_WORDS+16(%rsp), %rdx
	movq	TRACE_FRAME_WORDS+24(%rsp), %rcx
	movq	TRACE_FRAME_WORDS+32(%rsp), %r8
	movq	TRACE_FRAME_WORDS+40(%rsp), %r9
	movaps	TRACE_FRAME_FLOATS(%rsp), %xmm0
	movaps	TRACE_FRAME_FLOATS+16(%rsp), %xmm1
	movaps	TRACE_FRAME_FLOATS+32(%rsp), %xmm2
	movaps	TRACE_FRAME_FLOATS+48(%rsp), %xmm3
	movaps	TRACE_FRAME_FLOATS+64(%rsp), %xmm4
	movaps	TRACE_FRAME_FLOATS+80(%rsp), %xmm5
	movaps	TRACE_FRAME_FLOATS+96(%rsp), %xmm6
	movaps	TRACE_FRAME_FLOATS+112(%rsp), %xmm7
	jz	1f
	call	*%r11
	movq	%rax, TRACE_FRAME_RESULT(%rsp)
	movq	%rdx, TRACE_FRAME_RESULT+8(%rsp)
	movaps	%xmm0, TRACE_FRAME_RESULT+16(%rsp)
	movq	%rsp, %rdi
	call	trace_end
	movq	TRACE_FRAME_RESULT(%rsp), %rax
	movq	TRACE_FRAME_RESULT+8(%rsp), %rdx
	movaps	TRACE_FRAME_RESULT+16(%rsp), %xmm0
	.cfi_remember_state
	leave
	.cfi_def_cfa %rsp, 8
	ret
1:	.cfi_restore_state
	leave
	.cfi_def_cfa %rsp, 8
	jmp	*%r11
	.cfi_endproc

#else

trace_call:
	.cfi_startproc
	.cfi_personality 0x1b, trace_personality
	stp	x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 29, -16
	.cfi_offset 30, -8
	mov	x29, sp
	.cfi_def_cfa_register 29
	sub	sp, sp, #TRACE_FRAME_SIZE
	stp	x0, x1, [sp, #TRACE_FRAME_WORDS]
	stp	x2, x3, [sp, #TRACE_FRAME_WORDS+16]
	stp	x4, x5, [sp, #TRACE_FRAME_WORDS+32]
	stp	x6, x7, [sp, #TRACE_FRAME_WORDS+48]
	stp	q0, q1, [sp, #TRACE_FRAME_FLOATS]
	stp	q2, q3, [sp, #TRACE_FRAME_FLOATS+32]
	stp	q4, q5, [sp, #TRACE_FRAME_FLOATS+64]
	stp	q6, q7, [sp, #TRACE_FRAME_FLOATS+96]
	str	w16, [sp, #TRACE_FRAME_INDEX]
	mov	x0, sp
	bl	trace_begin
	mov	x17, x0
	ldr	w9, [sp, #TRACE_FRAME_INDEX]
	adrp	x16, trampoline_targets
	add	x16, x16, :lo12:trampoline_targets
	ldr	x16, [x16, x9, lsl #3]
	ldp	x0, x1, [sp, #TRACE_FRAME_WORDS]
	ldp	x2, x3, [sp, #TRACE_FRAME_WORDS+16]
	ldp	x4, x5, [sp, #TRACE_FRAME_WORDS+32]
	ldp	x6, x7, [sp, #TRACE_FRAME_WORDS+48]
	ldp	q0, q1, [sp, #TRACE_FRAME_FLOATS]
	ldp	q2, q3, [sp, #TRACE_FRAME_FLOATS+32]
	ldp	q4, q5, [sp, #TRACE_FRAME_FLOATS+64]
	ldp	q6, q7, [sp, #TRACE_FRAME_FLOATS+96]
	cbz	x17, 1f
	blr	x16
	stp	x0, x1, [sp, #TRACE_FRAME_RESULT]
	str	q0, [sp, #TRACE_FRAME_RESULT+16]
	mov	x0, sp
	bl	trace_end
	ldp	x0, x1, [sp, #TRACE_FRAME_RESULT]
	ldr	q0, [sp, #TRACE_FRAME_RESULT+16]
	.cfi_remember_state
	mov	sp, x29
	.cfi_def_cfa_register 31
	ldp	x29, x30, [sp], #16
	.cfi_restore 29
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	ret
1:	.cfi_restore_state
	mov	sp, x29
	.cfi_def_cfa_register 31
	ldp	x29, x30, [sp], #16
	.cfi_restore 29
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc

#endif
	.size	trace_call, .-trace_call
	.section .note.GNU-stack, "", %progbits
