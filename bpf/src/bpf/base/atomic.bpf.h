/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that disable preemption while they run. A program writes data that belongs to its CPU: rings, ledger,
 * scratch memory. If it is preempted, the kernel skips the same program for other tasks on that CPU, and their events
 * would be lost. Tracepoints used to run programs with preemption disabled. `preemptible` is set on kernels that no
 * longer do. Programs on functions never had that protection; `functions_preemptible` is set where they can disable
 * preemption themselves.
 */
#ifndef IOREEL_ATOMIC_H
#define IOREEL_ATOMIC_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Set before loading. Where they are false, the code that depends on them is removed at load. */
const volatile bool preemptible = false;
const volatile bool functions_preemptible = false;

extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
extern void bpf_local_irq_save(unsigned long *flags) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym __weak;

static __always_inline void keep_cpu(bool can_lose)
{
	if (can_lose)
		bpf_preempt_disable();
}

/*
 * Enables preemption without an immediate switch to another task. With interrupts disabled, bpf_preempt_enable does not
 * check whether another task waits for the CPU, and neither does enabling interrupts. The other task runs at the next
 * opportunity, which is after the program. A window of some instructions remains before keep_cpu and after this
 * function.
 */
static __noinline void enable_later(void)
{
	unsigned long flags;

	bpf_local_irq_save(&flags);
	bpf_preempt_enable();
	bpf_local_irq_restore(&flags);
}

/* A call, not inlined: the programs' stacks are full on kernels where this is not needed. */
static __always_inline void yield_cpu(bool can_lose)
{
	if (can_lose)
		enable_later();
}

/* BPF_PROG for programs on tracepoints; disables preemption where the tracepoint does not. */
#define ATOMIC_PROG(name, args...) KEEPING_PROG(preemptible, name, ##args)

/* Likewise for programs on entry and exit of functions. */
#define FUNCTION_PROG(name, args...) KEEPING_PROG(functions_preemptible, name, ##args)

#define KEEPING_PROG(can_lose, name, args...)                                                                          \
	name(unsigned long long *ctx);                                                                                 \
	static __always_inline int ____##name(unsigned long long *ctx, ##args);                                        \
	int name(unsigned long long *ctx)                                                                              \
	{                                                                                                              \
		_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                  \
		    keep_cpu(can_lose);                                                                                \
		____##name(___bpf_ctx_cast(args));                                                                     \
		yield_cpu(can_lose);                                                                                   \
		return 0;                                                                                              \
		_Pragma("GCC diagnostic pop")                                                                          \
	}                                                                                                              \
	static __always_inline int ____##name(unsigned long long *ctx, ##args)

#endif
