//! The spans that the engine opens. Every one of them is declared here.
//!
//! Dashboards and searches are built on them: target, name and fields are an interface, listed in `docs/reference/telemetry.md`. A
//! test compares both lists. The span of a run is not entered, so it adds nothing to the log lines of a step.

use scoop_core::{Context, Failure, SignalKey, TraceContext};
use tracing::field::{Empty, display as shown};
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use super::At;
use super::metrics::CodeEnd;
use super::text::FailureText;
use super::trace::{self, Parent};
use crate::util::sync::{Mutex, lock};

/// The kind of user code that runs: the field `kind` of its span.
#[derive(Clone, Copy)]
pub(crate) enum Code {
    Step,
    Compensation,
    ChildFailure,
    Finally,
}

impl Code {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Compensation => "compensation",
            Self::ChildFailure => "child_failure",
            Self::Finally => "finally",
        }
    }
}

/// The span around the launch of so many messages by a client: of one hierarchy, if it is one message. It is part of the
/// trace of the caller, if that has named one, or of the current span.
pub(crate) fn launch_span(
    topic: &str,
    hierarchy: Option<Uuid>,
    messages: usize,
    caller: Option<&TraceContext>,
) -> Span {
    let span = tracing::info_span!(
        target: "scoop::launch",
        "launch",
        otel.kind = "producer",
        topic,
        hierarchy = hierarchy.map(shown),
        messages,
    );
    trace::begin(&span, caller.and_then(Parent::of).as_ref(), || format!("launch {topic}"));
    span
}

pub(crate) fn signal_span(to: &SignalKey) -> Span {
    let span = tracing::info_span!(
        target: "scoop::signal",
        "signal",
        otel.kind = "producer",
        signal = to.name,
        key = to.key,
    );
    trace::begin(&span, None, || format!("signal {}", to.name));
    span
}

/// The span of a run while this process executes it: from its claim until it waits, ends or is left to others.
pub(crate) struct RunSpan {
    span: Span,
    parent: Option<Parent>,
    /// Whether it begins a trace.
    is_first: bool,
    /// Recorded at the end, since a tracer keeps each value of a field.
    end: Mutex<End>,
}

#[derive(Default)]
struct End {
    outcome: Option<&'static str>,
    failure: Option<String>,
    is_error: bool,
}

impl RunSpan {
    pub(crate) fn begin(at: At<'_>, context: &Context, links: impl FnOnce() -> Vec<TraceContext>) -> Self {
        let launcher = trace::stored(at, context).as_ref().and_then(Parent::of);
        let span = Parent::makes(launcher.as_ref(), || Self::of_run(at));
        if trace::has_links(&span) {
            links().iter().filter_map(Parent::of).for_each(|to| trace::link(&span, &to));
        }
        let own = trace::begin(&span, launcher.as_ref(), || Self::name(at));
        Self { is_first: launcher.is_none(), span, parent: own.or(launcher), end: Mutex::default() }
    }

    /// Begins the span of the next execution of the run, in a trace of its own with a link to this one.
    pub(crate) fn followed_by(&self, at: At<'_>) -> Self {
        let span = Self::of_run(at);
        if let Some(before) = &self.parent {
            trace::link(&span, before);
        }
        let parent = trace::begin(&span, None, || Self::name(at));
        Self { span, parent, is_first: true, end: Mutex::default() }
    }

    fn of_run(at: At<'_>) -> Span {
        tracing::info_span!(
            target: "scoop::run",
            parent: None,
            "run",
            otel.kind = "consumer",
            otel.status_code = Empty,
            saga = at.saga,
            run = shown(at.run),
            root = shown(at.root),
            is_root = at.is_root(),
            hierarchy = shown(at.hierarchy),
            topic = at.topic,
            outcome = Empty,
            failure = Empty,
        )
    }

    fn name(at: At<'_>) -> String {
        format!("run {}", at.saga)
    }

    /// Has the run continue the trace of this span from now on, if its context has named none.
    pub(crate) fn continues_in(&self, context: &mut Context) {
        if let Some(trace) = self.parent.as_ref().filter(|_| self.is_first).and_then(Parent::trace) {
            context.set_trace_context(&trace);
        }
    }

    /// The span around the user's code, so that its log lines name their run. It is linked to the span that has sent the
    /// signal with which the step goes on.
    pub(crate) fn step(&self, at: At<'_>, code: Code, signalled_by: Option<&TraceContext>) -> StepSpan {
        let span = Parent::makes(self.parent.as_ref(), || {
            tracing::info_span!(
                target: "scoop::step",
                parent: None,
                "step",
                otel.status_code = Empty,
                kind = code.name(),
                saga = at.saga,
                step = at.step,
                run = shown(at.run),
                root = shown(at.root),
                is_root = at.is_root(),
                hierarchy = shown(at.hierarchy),
                topic = at.topic,
                attempt = at.attempt,
                outcome = Empty,
            )
        });
        if let Some(sender) = signalled_by.and_then(Parent::of) {
            trace::link(&span, &sender);
        }
        let own = trace::begin(&span, self.parent.as_ref(), || match code {
            Code::Step | Code::Compensation => format!("{}.{}", at.saga, at.step),
            // A `finally` after a success is a step of that name.
            Code::Finally if at.step.ends_with(" (finally)") => format!("{}.{}", at.saga, at.step),
            Code::ChildFailure | Code::Finally => format!("{}.{} ({})", at.saga, at.step, code.name()),
        });
        StepSpan { span, continues: if own.is_none() { self.parent.clone() } else { None } }
    }

    pub(crate) fn fails(&self, failure: &Failure) {
        if !self.span.is_disabled() {
            let mut end = lock(&self.end);
            (end.is_error, end.failure) = (true, Some(FailureText(failure).to_string()));
        }
    }

    pub(crate) fn is_stuck(&self) {
        let mut end = lock(&self.end);
        (end.is_error, end.outcome) = (true, Some("stuck"));
    }

    /// Why this process executes the run no longer.
    pub(crate) fn ends_as(&self, outcome: &'static str) {
        lock(&self.end).outcome = Some(outcome);
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        if self.span.is_disabled() {
            return;
        }
        let End { outcome, failure, is_error } = std::mem::take(&mut *lock(&self.end));
        if is_error {
            self.span.record("otel.status_code", ERROR);
        }
        if let Some(outcome) = outcome {
            self.span.record("outcome", outcome);
        }
        if let Some(failure) = failure {
            self.span.record("failure", failure);
        }
    }
}

pub(crate) struct StepSpan {
    pub(super) span: Span,
    /// The trace of its run, if no tracer knows the span.
    continues: Option<Parent>,
}

impl StepSpan {
    pub(crate) fn around<F: Future>(self, code: F) -> impl Future<Output = F::Output> {
        trace::within(self.continues, code).instrument(self.span)
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        trace::of(&self.span).or_else(|| self.continues.as_ref()?.trace())
    }
}

pub(super) fn ends(step: &Span, end: CodeEnd) {
    step.record("outcome", end.name());
    if !matches!(end, CodeEnd::Succeeded) {
        step.record("otel.status_code", ERROR);
    }
}

const ERROR: &str = "ERROR";
