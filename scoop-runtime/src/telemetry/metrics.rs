//! The metrics, through the facade `metrics`; nothing without the feature of that name. Every one of them is declared
//! here.
//!
//! Dashboards and alerts are built on them: name, unit and labels are an interface, listed in `docs/reference/telemetry.md`. A test
//! compares both lists.

use std::sync::OnceLock;
use std::time::Instant;

#[cfg(feature = "metrics")]
use ::metrics::Histogram;
use scoop_core::Definition;
use tracing::Span;

use super::Code;
use super::spans::{self, StepSpan};

/// The number of values of a label that a process reports. Further ones are reported as [`OTHER`].
#[cfg(feature = "metrics")]
const LABEL_VALUES_MAX: usize = 500;

#[cfg(feature = "metrics")]
const OTHER: &str = "(other)";

/// A histogram, which records nothing without the feature.
#[cfg(not(feature = "metrics"))]
pub(crate) struct Histogram;

#[cfg(not(feature = "metrics"))]
impl Histogram {
    pub(crate) fn record(&self, _: f64) {}
}

#[cfg(test)]
pub(super) struct Declared {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
}

/// Declares metrics: a function for each, their descriptions, and a list of all.
macro_rules! metrics {
    ($(
        #[doc = $doc:literal]
        $kind:ident $name:literal in $unit:ident = $function:ident($($label:ident),*);
    )*) => {
        $(metrics!(@function $kind $name $function ($($label),*) $doc);)*

        #[cfg(feature = "metrics")]
        fn describe_all() {
            $(metrics!(@describe $kind $name $unit $doc);)*
        }

        #[cfg(test)]
        pub(super) const ALL: &[Declared] = &[$(Declared {
            kind: stringify!($kind),
            name: $name,
            unit: stringify!($unit),
            labels: &[$(stringify!($label)),*],
        }),*];
    };
    (@function counter $name:literal $function:ident ($($label:ident),*) $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $function($($label: &str,)* more: usize) {
            #[cfg(feature = "metrics")]
            ::metrics::counter!($name, vec![$(label(stringify!($label), $label)),*])
                .increment(u64::try_from(more).unwrap_or(u64::MAX));
            #[cfg(not(feature = "metrics"))]
            let _ = ($($label,)* more);
        }
    };
    (@function histogram $name:literal $function:ident ($($label:ident),*) $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $function($($label: &str,)*) -> Histogram {
            #[cfg(feature = "metrics")]
            return ::metrics::histogram!($name, vec![$(label(stringify!($label), $label)),*]);
            #[cfg(not(feature = "metrics"))]
            {
                let _: &[&str] = &[$($label),*];
                Histogram
            }
        }
    };
    (@function gauge $name:literal $function:ident ($($label:ident),*) $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $function($($label: &str,)* value: f64) {
            #[cfg(feature = "metrics")]
            ::metrics::gauge!($name, vec![$(label(stringify!($label), $label)),*]).set(value);
            #[cfg(not(feature = "metrics"))]
            let _ = ($($label,)* value);
        }
    };
    (@describe counter $name:literal $unit:ident $doc:literal) => {
        ::metrics::describe_counter!($name, ::metrics::Unit::$unit, $doc.trim())
    };
    (@describe histogram $name:literal $unit:ident $doc:literal) => {
        ::metrics::describe_histogram!($name, ::metrics::Unit::$unit, $doc.trim())
    };
    (@describe gauge $name:literal $unit:ident $doc:literal) => {
        ::metrics::describe_gauge!($name, ::metrics::Unit::$unit, $doc.trim())
    };
}

metrics! {
    /// The messages that were launched by this process, by clients and by steps.
    counter "scoop_launches_total" in Count = launches(topic);

    /// The launches by this process that were refused, since the queue of a saga is full.
    counter "scoop_refused_launches_total" in Count = refused_launches(topic, saga);

    /// The time that the code of a step took; of a decision, with its transaction.
    histogram "scoop_step_seconds" in Seconds = step_seconds(saga, step, kind, outcome);

    /// The time from the moment at which a run became ready until its claim; not of runs that start without waiting.
    histogram "scoop_queue_seconds" in Seconds = queue_seconds(saga);

    /// The time from the beginning of a run until its end; without the rollback that is requested after its commit.
    histogram "scoop_run_seconds" in Seconds = run_seconds(saga, outcome);

    /// The attempts that failed and are repeated.
    counter "scoop_retries_total" in Count = retries(saga, cause);

    /// The runs that failed and roll back, by the code of the first cause.
    counter "scoop_failures_total" in Count = failures(saga, code);

    /// The rollbacks of runs that ended.
    counter "scoop_rollbacks_total" in Count = rollbacks(saga, outcome);

    /// The runs at the top of a hierarchy that ended in this process.
    counter "scoop_root_runs_total" in Count = root_runs(outcome);

    /// The events of level INFO and above.
    counter "scoop_events_total" in Count = events(target, event, level);

    /// The time of a reconciliation with its sweep.
    histogram "scoop_sweep_seconds" in Seconds = sweep_seconds();

    /// The time of a claim.
    histogram "scoop_claim_seconds" in Seconds = claim_seconds();

    /// The runs that were claimed from a queue.
    counter "scoop_claimed_runs_total" in Count = claimed_runs();

    /// The slots of the process: how many runs it executes at the same time.
    gauge "scoop_slots" in Count = slots();

    /// The slots that are in use.
    gauge "scoop_slots_used" in Count = slots_used();

    /// The open connections.
    gauge "scoop_connections" in Count = connections(pool);

    /// The open connections that are in use.
    gauge "scoop_connections_used" in Count = connections_used(pool);

    /// For how long the first ready run or deadline of the sagas of this process has been due.
    gauge "scoop_lag_seconds" in Seconds = lag_seconds();

    /// The unfinished runs in the database, as the server estimates.
    gauge "scoop_unfinished_runs" in Count = unfinished_runs();

    /// The runs that do not continue by themselves; 1,000 if there are more.
    gauge "scoop_stuck_runs" in Count = stuck_runs();

    /// The failed rollbacks without a repair in progress; 1,000 if there are more.
    gauge "scoop_failed_rollbacks" in Count = failed_rollbacks();

    /// The runs of retired handlers without a program and without a deadline: nothing ends the waits for them; 1,000 if there are more.
    gauge "scoop_unbounded_waits" in Count = unbounded_waits();

    /// The hierarchies whose deletion or archive failed; 1,000 if there are more.
    gauge "scoop_undeletable_hierarchies" in Count = undeletable_hierarchies();

    /// The runs that wait for a worker in a queue with a limit; no more than the limit are counted.
    gauge "scoop_queue_length" in Count = queue_length(saga);

    /// The limit of the queue of a saga; 0 once it has none any more.
    gauge "scoop_queue_limit" in Count = queue_limit(saga);

    /// The size of the working set with its indexes.
    gauge "scoop_working_set_bytes" in Bytes = working_set_bytes();

    /// The size of the record with its indexes.
    gauge "scoop_record_bytes" in Bytes = record_bytes();
}

/// Describes all metrics to the recorder, which the program has installed before.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    describe_all();
}

/// A label. After a number of different values the process reports further ones as [`OTHER`].
#[cfg(feature = "metrics")]
fn label(name: &'static str, value: &str) -> ::metrics::Label {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, PoisonError, RwLock};

    use ::metrics::{Label, SharedString};

    static KNOWN: RwLock<BTreeMap<&str, BTreeSet<Arc<str>>>> = RwLock::new(BTreeMap::new());
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = known.get(name).and_then(|values| values.get(value)) {
        return Label::new(name, SharedString::from_shared(value.clone()));
    }
    drop(known);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let values = known.entry(name).or_default();
    if values.len() >= LABEL_VALUES_MAX && !values.contains(value) {
        return Label::from_static_parts(name, OTHER);
    }
    let value = Arc::<str>::from(value);
    values.insert(value.clone());
    Label::new(name, SharedString::from_shared(value))
}

#[derive(Clone, Copy)]
pub(crate) enum CodeEnd {
    Succeeded,
    Failed,
    /// It was dropped: it took too long, the engine stops, or it panicked.
    Stopped,
}

impl CodeEnd {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// The histograms of the steps of a saga. Each is looked up once: its recorder is installed before the program starts
/// Scoop, and a lookup takes longer than the rest.
#[derive(Default)]
pub(crate) struct StepTimes(OnceLock<Box<[StepTimesOf]>>);

/// The histograms of a step, by its code and the end of that.
type StepTimesOf = [[OnceLock<Histogram>; 3]; 4];

impl StepTimes {
    fn get(&self, (step, steps): (usize, usize), code: Code, end: CodeEnd) -> Option<&OnceLock<Histogram>> {
        let all = self.0.get_or_init(|| (0..steps).map(|_| StepTimesOf::default()).collect());
        all.get(step)?.get(code as usize)?.get(end as usize)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct TimedStep<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) times: &'a StepTimes,
    pub(crate) step: usize,
}

/// Measures the code of a step, until it is dropped, and records its end in its span.
pub(crate) struct StepTimer<'a> {
    /// `None` without the feature.
    began: Option<Instant>,
    of: TimedStep<'a>,
    code: Code,
    span: Span,
    end: CodeEnd,
}

impl<'a> StepTimer<'a> {
    pub(crate) fn begin(of: TimedStep<'a>, code: Code, StepSpan { span, .. }: &StepSpan) -> Self {
        let began = cfg!(feature = "metrics").then(Instant::now);
        Self { began, of, code, span: span.clone(), end: CodeEnd::Stopped }
    }

    /// Ends the measurement with this result, which it returns.
    pub(crate) fn result<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        self.end(if result.is_ok() { CodeEnd::Succeeded } else { CodeEnd::Failed });
        result
    }

    pub(crate) fn end(mut self, end: CodeEnd) {
        self.end = end;
    }
}

impl Drop for StepTimer<'_> {
    fn drop(&mut self) {
        spans::ends(&self.span, self.end);
        if let Some(began) = self.began {
            let Self { of: TimedStep { definition, times, step }, code, end, .. } = *self;
            let Definition { saga, steps, .. } = definition;
            let name = steps.get(step).map_or("", |step| &*step.name);
            let resolve = || step_seconds(saga, name, code.name(), end.name());
            let seconds = began.elapsed().as_secs_f64();
            if let Some(known) = times.get((step, steps.len()), code, end) {
                known.get_or_init(resolve).record(seconds);
            }
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn further_values_of_a_label_are_reported_as_other() {
        let reported = |value: usize| label("of_a_test", &value.to_string()).value().to_owned();
        for value in 0..LABEL_VALUES_MAX {
            assert_eq!(reported(value), value.to_string());
        }
        assert_eq!(reported(LABEL_VALUES_MAX), OTHER);
        assert_eq!(reported(LABEL_VALUES_MAX - 1), (LABEL_VALUES_MAX - 1).to_string(), "a known value stays");
    }
}
