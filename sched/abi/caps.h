/* Caps of the scheduler's fixed arrays, each with its reason. crates/units states the same for Rust
 * (`units::caps`); a test of crates/sched-core compares them. */
#ifndef TANDEM_CAPS_H
#define TANDEM_CAPS_H

/* twice the largest x86 host sold today */
#define PCPUS_MAX 1024
#define PCPU_WORDS (PCPUS_MAX / 64)
/* VS51 names 512 for vSphere 5.1; the system group is one of them */
#define VMS_MAX 1024
/* the table of worlds has room for as many threads as the kernel allows at the load (threads-max),
 * and for this many at most: a queue key has so many bits for their number */
#define WORLD_BITS 20
#define WORLDS_MAX 1048576
/* of one VM; more than any guest of KVM runs today */
#define VCPUS_MAX 1024
/* ten for each VM of a host with a hundred; the root is one of them */
#define POOLS_MAX 1024
/* levels below the root: cgroup trees of libvirt, Proxmox and KubeVirt have 2 to 5 */
#define POOL_DEPTH_MAX 16
/* of a plan's tree: every VM, the system group, every pool */
#define NODES_MAX (VMS_MAX + POOLS_MAX)
/* limits in force at once, of VMs and pools together; number 0 is none */
#define LIMITERS_MAX 1024
/* 1,024 pCPUs in LLCs of four */
#define CLUSTERS_MAX 256
/* one word of idle bits; a larger LLC is cut into several clusters */
#define CLUSTER_PCPUS 64
/* pCPUs whose timer looks at the same VMs: on 512 pCPUs each tick has a 64th of them */
#define BLOCK_PCPUS 8
#define BLOCKS_MAX (PCPUS_MAX / BLOCK_PCPUS)
/* limits that one timer serves: on hosts with more of them blocks of pCPUs have a part each */
#define LIMITS_OF_PART 64
#define LIMIT_PARTS_MAX (LIMITERS_MAX / LIMITS_OF_PART)
/* worlds of a queue that one decision looks at; VS51: "tens of vCPUs per pCPU" */
#define QUEUE_SCAN_MAX 48
/* ns to which queued deadlines are rounded down: a five-hundredth of the smallest margin */
#define QUEUE_KEY_UNIT 4096
/* worlds of a queue that the starvation guard looks at */
#define GUARD_SCAN_MAX 1024
/* pCPUs that are asked, itself first, to move the worlds of one */
#define HOME_HELPERS_MAX 8
/* VMs that wake a VM's worlds and are counted: those with more than a quarter of the wake-ups */
#define VM_TALKS 4
/* remote pCPUs looked at in a busy pCPU's decision (ESXi's *MigrateIdlePcpus) */
#define PROBE_MAX 4
/* of a pCPU's ring, 256 KB: 160 ms at 50,000 records a second, 5 sleeps of the recorder */
#define TRACE_RECORDS 8192
/* slots of a ring kept free for a program that interrupts one between its look and its record */
#define TRACE_NESTED 64

_Static_assert(LIMITERS_MAX <= PCPUS_MAX, "queue numbers of limiters follow two for each pCPU");
_Static_assert(VMS_MAX <= PCPUS_MAX, "queue numbers of co-stopped vCPUs follow those of limiters");
_Static_assert((VCPUS_MAX & (VCPUS_MAX - 1)) == 0, "a mask of whole bits");
_Static_assert(WORLDS_MAX == 1 << WORLD_BITS, "a mask of whole bits");
_Static_assert((VM_TALKS & (VM_TALKS - 1)) == 0, "a mask of whole bits");
_Static_assert(PCPUS_MAX % 64 == 0, "pCPU sets are whole words");
_Static_assert(CLUSTERS_MAX * 4 >= PCPUS_MAX, "every pCPU has a cluster");

#endif
