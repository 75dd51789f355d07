//! What a chart's metric is of a phase, in which unit, and which way is better.

use serde::Serialize;

use crate::measure::phase::Phase;
use crate::studies::Metric;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

impl Metric {
    /// The figure of a phase; none where it has no meaning: nothing was done, or it is no figure of a phase
    /// ([`Metric::SystemCalls`] comes from the traced pass, [`Metric::Latency`] is a whole curve).
    #[must_use]
    pub fn of(self, phase: &Phase) -> Option<f64> {
        let operations = (phase.operations > 0).then_some(phase.operations as f64);
        let cpu_s = phase.usage.user_cpu_s + phase.usage.system_cpu_s;
        match self {
            Self::PerSecond => Some(phase.rate()),
            Self::Seconds => Some(phase.seconds),
            Self::CpuPercent => (phase.seconds > 0.0).then(|| 100.0 * cpu_s / phase.seconds),
            Self::CpuPerOperation => Some(1e6 * cpu_s / operations?),
            Self::TransactionCpu => Some(1e3 * phase.transaction_cpu_s / operations?),
            Self::SystemCpu => Some(1e3 * phase.usage.system_cpu_s / operations?),
            Self::BusyCalls => Some(1e3 * phase.waits.busy_handler_calls as f64 / operations?),
            Self::RefusedPercent => {
                let refused = phase.refusals.total() as f64;
                let attempts = refused + phase.operations as f64;
                (attempts > 0.0).then(|| 100.0 * refused / attempts)
            }
            Self::FileBytes => phase.file_bytes.map(|bytes| bytes as f64),
            Self::SystemCalls | Self::Latency => None,
        }
    }

    /// The unit, as it stands on an axis.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::PerSecond => "per second",
            Self::Seconds => "seconds",
            Self::CpuPercent => "% of one processor",
            Self::CpuPerOperation => "processor µs per operation",
            Self::TransactionCpu => "processor s in 1,000 transactions",
            Self::SystemCpu => "processor s in the kernel for 1,000 transactions",
            Self::BusyCalls => "busy-handler calls per 1,000",
            Self::SystemCalls => "system calls per operation",
            Self::RefusedPercent => "% of attempts refused",
            Self::FileBytes => "bytes",
            Self::Latency => "microseconds",
        }
    }

    /// Which way is better; none where a figure is neither good nor bad by itself.
    #[must_use]
    pub fn better(self) -> Option<Better> {
        match self {
            Self::PerSecond => Some(Better::More),
            Self::CpuPercent => None,
            Self::Seconds
            | Self::CpuPerOperation
            | Self::TransactionCpu
            | Self::SystemCpu
            | Self::BusyCalls
            | Self::SystemCalls
            | Self::RefusedPercent
            | Self::FileBytes
            | Self::Latency => Some(Better::Less),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::phase::{Refusals, Usage};

    #[test]
    fn figures_are_of_operations_that_were_done() {
        let phase = Phase {
            operations: 50,
            seconds: 2.0,
            refusals: Refusals { busy: 30, conflict: 15, deadlock: 5 },
            usage: Usage { user_cpu_s: 0.5, system_cpu_s: 0.5, ..Usage::default() },
            ..Phase::default()
        };
        assert_eq!(Metric::PerSecond.of(&phase), Some(25.0));
        assert_eq!(Metric::CpuPercent.of(&phase), Some(50.0));
        assert_eq!(Metric::CpuPerOperation.of(&phase), Some(20_000.0));
        assert_eq!(Metric::RefusedPercent.of(&phase), Some(50.0));
    }

    #[test]
    fn nothing_done_has_no_figure_per_operation() {
        let nothing = Phase::default();
        assert_eq!(Metric::CpuPerOperation.of(&nothing), None);
        assert_eq!(Metric::CpuPercent.of(&nothing), None);
        assert_eq!(Metric::PerSecond.of(&nothing), Some(0.0));
    }
}
