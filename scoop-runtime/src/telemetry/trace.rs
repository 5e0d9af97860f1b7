//! The trace that a span is part of: its parent in another process, and what later spans continue. Nothing without the
//! feature `opentelemetry`, since only a tracer has ids of spans.

use scoop_core::{Context, TraceContext};
use tracing::Span;

use super::{At, trace_refused};

pub(crate) use bridge::{Parent, begin, current, link, of};

/// The trace context that a run was launched with, if its span or those of its steps may need it. A malformed one is left
/// out.
pub(super) fn stored(at: At<'_>, span: &Span, context: &Context) -> Option<TraceContext> {
    let is_needed =
        || !span.is_disabled() || tracing::span_enabled!(target: "scoop::step", tracing::Level::INFO);
    if !cfg!(feature = "opentelemetry") || !is_needed() {
        return None;
    }
    context.trace_context().unwrap_or_else(|error| {
        trace_refused(at, &error);
        None
    })
}

/// Whether the links of a span are known to a tracer.
pub(super) fn has_links(span: &Span) -> bool {
    cfg!(feature = "opentelemetry") && !span.is_disabled()
}

/// The trace context that the headers of a caller name. Malformed ones are left out.
pub(crate) fn of_headers(traceparent: Option<&str>, tracestate: Option<&str>) -> Option<TraceContext> {
    let trace = TraceContext::from_headers(traceparent?, tracestate);
    trace.inspect_err(super::header_refused).ok()
}

/// The context of a message, with the trace that its handlers continue: if it fits into so many bytes, since it must not
/// be the reason why a launch is refused.
pub(crate) fn with_trace(context: Context, trace: Option<&TraceContext>, bytes_max: usize) -> Context {
    let Some(trace) = trace else { return context };
    let mut traced = context.clone();
    traced.set_trace_context(trace);
    if traced.bytes() <= bytes_max { traced } else { context }
}

#[cfg(feature = "opentelemetry")]
mod bridge {
    use std::str::FromStr as _;

    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use super::{Span, TraceContext};

    /// The parent of spans.
    pub(crate) struct Parent(opentelemetry::Context);

    impl Parent {
        /// A span of another process, or of an earlier time.
        pub(crate) fn of(trace: &TraceContext) -> Option<Self> {
            let state = trace.tracestate().and_then(|state| TraceState::from_str(state).ok());
            let span = SpanContext::new(
                TraceId::from_bytes(trace.trace_id()),
                SpanId::from_bytes(trace.span_id()),
                TraceFlags::new(trace.flags()),
                true,
                state.unwrap_or_default(),
            );
            Some(Self(opentelemetry::Context::new().with_remote_span_context(span)))
        }

        pub(crate) fn trace(&self) -> Option<TraceContext> {
            trace_of(&self.0)
        }
    }

    /// Begins a span under this parent, if one is given, and names it for its tracer. Returns it as a parent, if a tracer
    /// knows it.
    pub(crate) fn begin(
        span: &Span,
        parent: Option<&Parent>,
        name: impl FnOnce() -> String,
    ) -> Option<Parent> {
        if span.is_disabled() {
            return None;
        }
        if let Some(Parent(parent)) = parent {
            // Without a tracer nothing has to be set.
            drop(span.set_parent(parent.clone()));
        }
        let context = span.context();
        let is_known = {
            let begun = context.span();
            if begun.is_recording() {
                begun.update_name(name());
            }
            begun.span_context().is_valid()
        };
        is_known.then_some(Parent(context))
    }

    /// Links a span that has not begun to an earlier one.
    pub(crate) fn link(span: &Span, to: &Parent) {
        span.add_link(to.0.span().span_context().clone());
    }

    /// The trace context of a span, if a tracer knows it.
    pub(crate) fn of(span: &Span) -> Option<TraceContext> {
        if span.is_disabled() { None } else { trace_of(&span.context()) }
    }

    /// The trace context of the current span.
    pub(crate) fn current() -> Option<TraceContext> {
        of(&Span::current()).or_else(|| opentelemetry::Context::map_current(trace_of))
    }

    fn trace_of(context: &opentelemetry::Context) -> Option<TraceContext> {
        let span = context.span();
        let span = span.span_context();
        let ids = (span.trace_id().to_bytes(), span.span_id().to_bytes());
        let trace = TraceContext::new(ids.0, ids.1, span.trace_flags().to_u8()).ok()?;
        Some(trace.with_state(&span.trace_state().header()))
    }
}

#[cfg(not(feature = "opentelemetry"))]
mod bridge {
    use std::convert::Infallible;

    use super::{Span, TraceContext};

    /// The parent of spans, of which there is none.
    pub(crate) struct Parent(Infallible);

    impl Parent {
        pub(crate) fn of(_: &TraceContext) -> Option<Self> {
            None
        }

        pub(crate) fn trace(&self) -> Option<TraceContext> {
            match self.0 {}
        }
    }

    pub(crate) fn begin(_: &Span, _: Option<&Parent>, _: impl FnOnce() -> String) -> Option<Parent> {
        None
    }

    pub(crate) fn link(_: &Span, to: &Parent) {
        match to.0 {}
    }

    pub(crate) fn of(_: &Span) -> Option<TraceContext> {
        None
    }

    pub(crate) fn current() -> Option<TraceContext> {
        None
    }
}
