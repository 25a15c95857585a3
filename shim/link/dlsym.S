/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym: calls shim_dlsym(name), which says where the real dlsym is, and *jumps* there with the registers and the return address that the caller left,
 * because RTLD_NEXT and RTLD_DEFAULT depend on who calls.
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
	movq	%rsi, %rdi
	call	shim_dlsym
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testq	%rax, %rax
	jz	1f
	jmp	*%rax
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
	mov	x0, x1
	bl	shim_dlsym
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_restore 29
	.cfi_restore 30
	.cfi_adjust_cfa_offset -32
	cbz	x16, 1f
	br	x16
1:	mov	x0, #0
	ret
	.cfi_endproc
	.size	dlsym, .-dlsym
#else
#error "no dlsym for this architecture"
#endif
	.section .note.GNU-stack, "", %progbits
