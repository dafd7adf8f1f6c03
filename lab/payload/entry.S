/* Entry of the workload kernel: where the boot loader, the other CPUs and the interrupts come in; it sets up stacks
 * and segments and calls C, and decides nothing. 32-bit protected mode without paging throughout. */

#define MULTIBOOT_MAGIC 0x1badb002
#define MULTIBOOT_FLAGS 0x00000002 /* memory information, and nothing else */
#define STACK_BYTES 4096
#define MAX_VCPUS 64 /* as in payload.h */

    .section .multiboot, "a"
    .align 4
    .long MULTIBOOT_MAGIC, MULTIBOOT_FLAGS, -(MULTIBOOT_MAGIC + MULTIBOOT_FLAGS)

    .text
    .code32
    .globl _start
_start:
    cli
    lgdt gdt_pointer
    ljmp $0x08, $1f
1:  movw $0x10, %cx
    movw %cx, %ds
    movw %cx, %es
    movw %cx, %ss
    movl $stacks + STACK_BYTES, %esp
    pushl %ebx /* the boot loader's information */
    call bsp_main
park:
    cli
    hlt
    jmp park

/* Every other CPU, in protected mode: its local APIC id picks its stack and is its number. */
ap_entry:
    movw $0x10, %cx
    movw %cx, %ds
    movw %cx, %es
    movw %cx, %ss
    movl 0xfee00020, %eax
    shrl $24, %eax
    cmpl $MAX_VCPUS, %eax
    jae park
    leal 1(%eax), %edx
    imull $STACK_BYTES, %edx
    leal stacks(%edx), %esp
    pushl %eax
    call ap_main
    jmp park

/* The timer interrupt only wakes the CPU and is acknowledged; the sleeping loop looks at the clock itself. */
    .globl timer_entry
timer_entry:
    movl $0, 0xfee000b0
    iret

    .globl spurious_entry
spurious_entry:
    iret

/* Start of the other CPUs: copied below 1 MB, entered in real mode with %cs:0 at the copy. */
    .code16
    .globl trampoline, trampoline_end
trampoline:
    cli
    movw %cs, %ax
    movw %ax, %ds
    lgdtl (trampoline_gdt - trampoline)
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $0x08, $ap_entry
    .align 4
trampoline_gdt:
    .word gdt_end - gdt - 1
    .long gdt
trampoline_end:

    .data
    .align 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff /* code, 4 GB, accessed */
    .quad 0x00cf93000000ffff /* data, 4 GB, accessed */
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt

    .bss
    .align 16
stacks:
    .skip STACK_BYTES * MAX_VCPUS

    .section .note.GNU-stack, "", @progbits
