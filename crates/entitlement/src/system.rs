//! What the host's own tasks weigh beside the VMs; it knows nothing of knobs' names.

use units::caps::SHARES_MAX;

/// Shares of the system group for each pCPU, at most: those of a VM's vCPU. Where all of them are busy with VMs, a host task has
/// what a vCPU has.
const PER_PCPU: u64 = 1000;

/// Shares of the system group, which is in the root: `set`, where it is not 0; else as many as all that is `beside` it there has
/// together, so that host tasks take no more than half while all of it wants its parts, and at most 1,000 for each pCPU.
///
/// Why not always those: all VMs of a libvirt host are in one slice that by itself has 1000 shares, and would get a 17th of 16
/// pCPUs beside a busy host.
///
/// ```
/// use entitlement::system_shares;
/// assert_eq!(system_shares(16, 0, [1000]), 1000); // /machine.slice
/// assert_eq!(system_shares(16, 0, [8000, 8000, 8000]), 16_000);
/// assert_eq!((system_shares(16, 300, [1000]), system_shares(16, 0, [])), (300, 16_000));
/// ```
pub fn system_shares(pcpus: u32, set: u64, beside: impl IntoIterator<Item = u64>) -> u64 {
    let most = (u64::from(pcpus) * PER_PCPU).min(SHARES_MAX);
    match (set, beside.into_iter().fold(0, u64::saturating_add)) {
        (0, 0) => most,
        (0, beside) => beside.min(most),
        (set, _) => set,
    }
}
