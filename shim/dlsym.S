/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym: asks shim_dlsym(handle, name, return address). That answers with what to return, or with -1 (DLSYM_JUMP): then this *jumps* to the real dlsym
 * with the registers and the return address that the caller left, because RTLD_NEXT and RTLD_DEFAULT depend on who calls.
 */
#if defined(__x86_64__)
	.text
	.globl	dlsym
	.type	dlsym, @function
dlsym:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	movq	24(%rsp), %rdx
	call	shim_dlsym
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	cmpq	$-1, %rax
	jne	1f
	jmp	*shim_real_dlsym(%rip)
1:	ret
	.cfi_endproc
	.size	dlsym, .-dlsym
#elif defined(__aarch64__)
	.text
	.globl	dlsym
	.type	dlsym, %function
dlsym:
	.cfi_startproc
	hint	#34
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	stp	x0, x1, [sp, #16]
	mov	x2, x30
	bl	shim_dlsym
	mov	x9, x0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_restore 29
	.cfi_restore 30
	.cfi_adjust_cfa_offset -32
	cmn	x9, #1
	b.ne	1f
	adrp	x16, shim_real_dlsym
	ldr	x16, [x16, :lo12:shim_real_dlsym]
	br	x16
1:	mov	x0, x9
	ret
	.cfi_endproc
	.size	dlsym, .-dlsym
#else
#error "no dlsym for this architecture"
#endif
	.section .note.GNU-stack, "", %progbits
