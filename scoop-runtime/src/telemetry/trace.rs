//! The trace that a span is part of: its parent in another process, and what later spans continue. Nothing without the
//! feature `opentelemetry`, since only a tracer has ids of spans.
//!
//! The trace context of a run is that of its launch, and its own spans do not replace it.
//! `docs/development/decisions/0024-traces.md` says why.

use scoop_core::{Context, TraceContext};
use tracing::Span;

use super::{At, trace_refused};

#[cfg(feature = "opentelemetry")]
pub use bridge::SampledTraces;
pub(crate) use bridge::{Parent, begin, current, link, of, within};

/// The trace context that a run was launched with, if a subscriber takes spans of runs or steps. A malformed one is left out.
pub(super) fn stored(at: At<'_>, context: &Context) -> Option<TraceContext> {
    let is_needed = || {
        tracing::span_enabled!(target: "scoop::run", tracing::Level::INFO)
            || tracing::span_enabled!(target: "scoop::step", tracing::Level::INFO)
    };
    if !cfg!(feature = "opentelemetry") || !is_needed() {
        return None;
    }
    context.trace_context().unwrap_or_else(|error| {
        trace_refused(at, &error);
        None
    })
}

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
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::str::FromStr as _;

    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
    use tracing::subscriber::Interest;
    use tracing::{Metadata, Subscriber};
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;
    use tracing_subscriber::layer::{Context, Filter};

    use super::{Span, TraceContext};

    thread_local! {
        /// Whether the span that this thread makes belongs to a trace that is not sampled.
        static IS_UNSAMPLED: Cell<bool> = const { Cell::new(false) };
    }

    /// A filter for the layer of `tracing-opentelemetry`: it leaves out the spans of runs and steps whose trace is not
    /// sampled.
    ///
    /// Without it, the layer collects the attributes of each span before its sampler decides, and drops them again. The
    /// decision is that of the span with which the trace begins, as by `Sampler::ParentBased`. Spans of your own within a step
    /// are part of the same trace, and not exported either.
    ///
    /// ```
    /// # use scoop_runtime::SampledTraces;
    /// use opentelemetry::trace::TracerProvider as _;
    /// use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
    /// use tracing::level_filters::LevelFilter;
    /// use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
    ///
    /// let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.01)));
    /// let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
    /// let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    /// let traces = traces.with_filter(SampledTraces);
    /// let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(traces);
    /// # drop(subscriber);
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct SampledTraces;

    impl<S: Subscriber> Filter<S> for SampledTraces {
        fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
            !(metadata.is_span() && IS_UNSAMPLED.get())
        }

        fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
            // Of these two, each span is asked for: the others are of no run.
            let depends = metadata.is_span() && ["scoop::run", "scoop::step"].contains(&metadata.target());
            if depends { Interest::sometimes() } else { Interest::always() }
        }
    }

    #[derive(Clone)]
    pub(crate) struct Parent(opentelemetry::Context);

    impl Parent {
        pub(crate) fn makes(parent: Option<&Self>, span: impl FnOnce() -> Span) -> Span {
            IS_UNSAMPLED.set(parent.is_some_and(|parent| !parent.is_sampled()));
            let span = span();
            IS_UNSAMPLED.set(false);
            span
        }

        fn is_sampled(&self) -> bool {
            self.0.span().span_context().is_sampled()
        }

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

    /// Executes code in a trace that is not sampled: spans in it, and messages that it launches, continue that trace. The layer
    /// does the same for a span that it knows.
    pub(crate) async fn within<F: Future>(unsampled: Option<Parent>, code: F) -> F::Output {
        let mut code = pin!(code);
        poll_fn(|context| {
            let _attached = unsampled.as_ref().map(|Parent(parent)| parent.clone().attach());
            code.as_mut().poll(context)
        })
        .await
    }

    /// Links a span that has not begun to an earlier one.
    pub(crate) fn link(span: &Span, to: &Parent) {
        span.add_link(to.0.span().span_context().clone());
    }

    pub(crate) fn of(span: &Span) -> Option<TraceContext> {
        if span.is_disabled() { None } else { trace_of(&span.context()) }
    }

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
    #[derive(Clone)]
    pub(crate) struct Parent(Infallible);

    impl Parent {
        pub(crate) fn makes(_: Option<&Self>, span: impl FnOnce() -> Span) -> Span {
            span()
        }

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

    pub(crate) async fn within<F: Future>(_: Option<Parent>, code: F) -> F::Output {
        code.await
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
