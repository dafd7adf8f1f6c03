//! What pCPUs lose to the other threads of their cores: time that is not there to be divided.

use super::CHARGED_WHOLE;
use entitlement::Taken;
use units::{PcpuId, Rate};

/// Losses of each pCPU, by its id, since the last window.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses(Vec<Loss>);

/// Rate and sum in thousandths, and until when that is accounted.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    rate: u64,
    sum: u64,
    until: u64,
}

impl Loss {
    fn account(&mut self, now: u64) {
        self.sum += (now - self.until) * self.rate;
        self.until = now;
    }
}

impl Losses {
    /// A pCPU loses so many thousandths of its time from `now` on; the window began at `from`.
    pub(super) fn lose(&mut self, from: u64, now: u64, pcpu: PcpuId, rate: u64) {
        let at = pcpu.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Loss { until: from, ..Loss::default() });
        }
        self.0[at].account(now);
        self.0[at].rate = rate;
    }

    /// What has been lost in a window of `wall` ns that ends at `now`.
    pub(super) fn take(&mut self, now: u64, wall: u64) -> Taken {
        let lost = |(loss, pcpu): (&mut Loss, u16)| {
            loss.account(now);
            let ns = u128::from(std::mem::take(&mut loss.sum) / CHARGED_WHOLE);
            let rate = ns * u128::from(Rate::ONE.0) / u128::from(wall);
            (rate > 0).then_some((PcpuId(pcpu), Rate(rate as u64)))
        };
        self.0.iter_mut().zip(0..).filter_map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_has_its_own_losses_by_pcpu() {
        let mut losses = Losses::default();
        let half = Rate(Rate::ONE.0 / 2);
        losses.lose(100, 150, PcpuId(1), 1000);
        assert_eq!(losses.take(200, 100), Taken::from([(PcpuId(1), half)]));
        losses.lose(200, 200, PcpuId(0), 375);
        losses.lose(200, 250, PcpuId(1), 0);
        let three_eighths = Rate(Rate::ONE.0 * 37 / 100); // 37.5 ns, rounded down
        assert_eq!(
            losses.take(300, 100),
            Taken::from([(PcpuId(0), three_eighths), (PcpuId(1), half)])
        );
    }
}
