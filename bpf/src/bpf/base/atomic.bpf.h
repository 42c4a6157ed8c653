/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that keep their CPU while they run. A program writes data that belongs to its CPU: rings, ledger, scratch.
 * While one program is interrupted on a CPU, the kernel skips it for all other tasks there, so their events would be
 * lost. Tracepoints used to run programs with preemption disabled. `preemptible` is set on kernels that no longer do.
 * Programs on functions never had that protection; `functions_preemptible` says where they can keep the CPU by
 * themselves.
 */
#ifndef IOREEL_ATOMIC_H
#define IOREEL_ATOMIC_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Set before loading; elsewhere what follows is gone once the programs are loaded. */
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
 * With interrupts disabled, enabling preemption does not look whether another task waits for the CPU, nor does enabling
 * interrupts: that task gets its turn at the next opportunity, which is after the program. Left are some instructions
 * before keep_cpu and after this in which an interrupt may come.
 */
static __noinline void enable_later(void)
{
	unsigned long flags;

	bpf_local_irq_save(&flags);
	bpf_preempt_enable();
	bpf_local_irq_restore(&flags);
}

/* Calls for it: the stacks of programs are full on kernels where this is not needed. */
static __always_inline void yield_cpu(bool can_lose)
{
	if (can_lose)
		enable_later();
}

/* BPF_PROG for programs of tracepoints that are not called with preemption disabled anyway. */
#define ATOMIC_PROG(name, args...) KEEPING_PROG(preemptible, name, ##args)

/* The same for programs on entry and exit of functions. */
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
