/* Where Xen enters the workload kernel of a PV VM, and the notes that describe the kernel to Xen's
 * domain builder (xen/include/public/elfnote.h); it sets a stack and never returns. */

.macro note type
	.pushsection .note.Xen, "a", @note
	.balign 4
	.long 4, 2f - 1f, \type
	.asciz "Xen"
1:
.endm
.macro endnote
2:	.balign 4
	.popsection
.endm

	note 6		/* XEN_ELFNOTE_GUEST_OS */
	.asciz "tandem"
	endnote
	note 5		/* XEN_ELFNOTE_XEN_VERSION */
	.asciz "xen-3.0"
	endnote
	note 3		/* XEN_ELFNOTE_VIRT_BASE */
	.quad 0
	endnote
	note 4		/* XEN_ELFNOTE_PADDR_OFFSET */
	.quad 0
	endnote
	note 1		/* XEN_ELFNOTE_ENTRY */
	.quad _start
	endnote
	note 9		/* XEN_ELFNOTE_PAE_MODE */
	.asciz "yes"
	endnote
	note 8		/* XEN_ELFNOTE_LOADER */
	.asciz "generic"
	endnote

	.section .text.start, "ax"
	.globl _start
_start:				/* %rsi: start_info */
	cld
	lea stacks + STACK_BYTES(%rip), %rsp
	mov %rsi, %rdi
	xor %ebp, %ebp
	call first_vcpu
1:	jmp 1b

	.globl vcpu_start
vcpu_start:			/* %rdi: the vCPU; its stack is set */
	cld
	xor %ebp, %ebp
	call other_vcpu
1:	jmp 1b

	.section .note.GNU-stack, "", @progbits
