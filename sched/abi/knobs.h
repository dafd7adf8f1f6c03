/* The knobs in force. */
#ifndef TANDEM_KNOBS_H
#define TANDEM_KNOBS_H

/* values of core_sharing */
enum core_sharing { SHARING_ANY, SHARING_VM, SHARING_NONE };

/* Written by user space before a load, read everywhere. Fields in the order of knobs.def. */
struct knobs {
	u64 quantum_us;
	u64 slice_min_us;
	u64 system_slice_us;
	u64 wake_credit_us;
	u64 lag_bound_us;
	u64 ready_bound_us;
	u64 preempt_margin_us;
	u64 migrate_margin_us;
	u64 spread_us;
	u64 shared_charge;
	u64 whole_core_us;
	u64 core_sharing;
	u64 housekeep_us;
	u64 system_shares;
	u64 cosched;
	u64 costop_us;
	u64 costart_us;
	u64 cosched_poll_us;
};

#endif
