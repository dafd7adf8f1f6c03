/* Caps of the scheduler's fixed arrays, each with its reason; crates/units states the same for Rust
 * (`units::caps`) and a test of crates/sched-core compares them. */
#ifndef TANDEM_CAPS_H
#define TANDEM_CAPS_H

#define PCPUS_MAX 1024		/* twice the largest x86 host sold today */
#define PCPU_WORDS (PCPUS_MAX / 64)
#define VMS_MAX 1024		/* VS51 names 512 for vSphere 5.1; the system group is one of them */
#define WORLDS_MAX 16384	/* 20 times the threads of a busy host; those beyond run first come, first served, and are not accounted */
#define VCPUS_MAX 1024		/* of one VM; more than any guest of KVM runs today */
#define POOLS_MAX 1024		/* ten for each VM of a host with a hundred; the root is one of them */
#define POOL_DEPTH_MAX 16	/* levels below the root: cgroup trees of libvirt, Proxmox and KubeVirt have 2 to 5 */
#define NODES_MAX (VMS_MAX + POOLS_MAX)	/* of a plan's tree: every VM, the system group, every pool */
#define LIMITERS_MAX 1024	/* limits in force at once, of VMs and pools together; number 0 is none */
#define CLUSTERS_MAX 256	/* 1,024 pCPUs in LLCs of four */
#define CLUSTER_PCPUS 64	/* one word of idle bits; a larger LLC is cut into several clusters */
#define QUEUE_SCAN_MAX 48	/* VS51: "tens of vCPUs per pCPU"; the order by key makes the rest uninteresting */
#define QUEUE_KEY_UNIT 4096	/* ns to which queued keys are rounded down: a five-hundredth of the smallest margin */
#define PROBE_MAX 4		/* remote pCPUs looked at in a busy pCPU's decision (ESXi's *MigrateIdlePcpus) */
#define TRACE_RECORDS 8192	/* of a pCPU's ring, 256 KB: 160 ms of a pCPU with 50,000 records a second, 5 times what the recorder sleeps */
#define TRACE_NESTED 64		/* of these kept free for programs that interrupt one that has looked for room */

_Static_assert(LIMITERS_MAX <= PCPUS_MAX, "queue numbers of limiters come after two for each pCPU");
_Static_assert(VMS_MAX <= PCPUS_MAX, "and those of co-stopped vCPUs after these");
_Static_assert((VCPUS_MAX & (VCPUS_MAX - 1)) == 0, "a mask of whole bits");
_Static_assert(PCPUS_MAX % 64 == 0, "pCPU sets are whole words");
_Static_assert(CLUSTERS_MAX * 4 >= PCPUS_MAX, "every pCPU has a cluster");

#define QUEUED_PARKED (2 * PCPUS_MAX + 1)	/* world.queued_on of one that is parked: this plus the number of the limit */
#define QUEUED_COSTOP (QUEUED_PARKED + LIMITERS_MAX)	/* and of one that is co-stopped: this plus its VM's */

#define VM_SYSTEM 0		/* the group of all host tasks */
#define WORLD_NONE 0		/* no world: nothing found, or a thread beyond the cap */

#endif
