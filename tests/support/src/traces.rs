//! A tracer that keeps all spans of this thread.

use std::collections::HashSet;
use std::fmt::Write as _;

use opentelemetry::trace::{SpanId, Status, TraceId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Identity, Layer, SubscriberExt as _};

use crate::events;

/// The ended spans of a process.
pub struct Traces {
    spans: InMemorySpanExporter,
    /// Spans are exported for as long as it lives.
    _provider: SdkTracerProvider,
}

impl Traces {
    /// Keeps the spans of this thread of level INFO and above until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        Self::listen_beside(Sampler::AlwaysOn, Identity::new())
    }

    /// The same with a sampler for spans at the beginning of a trace, beside another layer.
    pub fn listen_beside(
        sampler: Sampler,
        other: impl Layer<Registry> + Send + Sync,
    ) -> (Self, DefaultGuard) {
        events::have_a_second_subscriber();
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
        let provider = provider.with_sampler(Sampler::ParentBased(Box::new(sampler))).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
        let layer = layer.with_filter(scoop::SampledTraces);
        let subscriber = tracing_subscriber::registry().with(other).with(LevelFilter::INFO).with(layer);
        let guard = tracing::subscriber::set_default(subscriber);
        (Self { spans, _provider: provider }, guard)
    }

    /// The spans that have ended, those that began first before others.
    pub fn spans(&self) -> Vec<SpanData> {
        let mut spans = self.spans.get_finished_spans().expect("nothing stops the exporter");
        spans.sort_by_key(|span| span.start_time);
        spans
    }

    /// The spans of this name.
    pub fn of(&self, name: &str) -> Vec<SpanData> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    /// The ids of all traces.
    pub fn ids(&self) -> HashSet<TraceId> {
        self.spans().iter().map(|span| span.span_context.trace_id()).collect()
    }

    /// A line for each span, below its parent: its name, with `!` if it has failed. Spans whose parents are not known here
    /// are at the top.
    pub fn tree(&self) -> String {
        let spans = self.spans();
        let is_known = |id: SpanId| spans.iter().any(|span| span.span_context.span_id() == id);
        let mut text = String::new();
        for span in spans.iter().filter(|span| !is_known(span.parent_span_id)) {
            draw(&spans, span, 0, &mut text);
        }
        text
    }
}

fn draw(spans: &[SpanData], span: &SpanData, depth: usize, text: &mut String) {
    let failed = if matches!(span.status, Status::Error { .. }) { " !" } else { "" };
    writeln!(text, "{:indent$}{}{failed}", "", span.name, indent = 2 * depth)
        .expect("a string takes every write");
    for child in spans.iter().filter(|child| child.parent_span_id == span.span_context.span_id()) {
        draw(spans, child, depth + 1, text);
    }
}
