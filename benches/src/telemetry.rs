//! B24: the price of telemetry, all of it on: a recorder of metrics, spans, and OpenTelemetry with a batch of spans that an
//! exporter drops. B1 and B2 with it and without it, in turns: with all traces sampled, and with one of a hundred.
//!
//! Both are in one build, with the features `metrics` and `opentelemetry`; without a recorder and a subscriber these do
//! nothing but look for one. A build without the features is measured by B1 and B2.

use crate::bench::Bench;
use crate::outcome::Outcome;

#[cfg(not(feature = "telemetry"))]
pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    bench.report.note("B24 is left out: this program was built without the feature `telemetry`.".into());
    Ok(())
}

#[cfg(feature = "telemetry")]
pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    on::measure(bench).await
}

#[cfg(feature = "telemetry")]
mod on {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use metrics_exporter_prometheus::PrometheusBuilder;
    use opentelemetry::KeyValue;
    use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

    use super::{Bench, Outcome};
    use crate::bench::Pace;
    use crate::drain::{self, Crowd, for_a_round, fresh, steps};
    use crate::os_process::family_processor_seconds;
    use crate::sagas::{Idle, Insert};

    /// Sagas of a first, short drain, which finds out how many a round needs.
    const PROBE: i64 = 600;

    /// The share of the traces that are sampled: all, and what a busy service would take. None without telemetry.
    const WAYS: [(&str, Option<f64>); 3] = [("", None), ("", Some(1.0)), (" sampled", Some(0.01))];

    /// The share of a step's processor time that telemetry may take.
    const ALLOWED: f64 = 0.03;

    /// Sagas whose spans are made without an engine: some seconds.
    const SAGAS_ALONE: u32 = 200_000;

    const STEPS_OF_A_SAGA: u32 = 3;

    /// Those of its launch, its run and its steps.
    const SPANS_OF_A_SAGA: u32 = 2 + STEPS_OF_A_SAGA;

    pub(super) async fn measure(bench: &mut Bench) -> Outcome<()> {
        for (drain, crowd) in [("B24 B1", Crowd::Inserts), ("B24 B2", Crowd::Idles)] {
            let mut count = for_a_round(bench, crowd, fresh(bench, crowd, PROBE).await?.per_second);
            for round in 0..bench.settings.rounds {
                let mut paces = BTreeMap::new();
                // Each comes first as often as the others.
                for way in (0..WAYS.len()).map(|turn| (round + turn) % WAYS.len()) {
                    paces.insert(way, observed(bench, crowd, count, WAYS[way].1).await?);
                }
                let (without, _) = paces[&0];
                if let (Crowd::Idles, Some(micros)) = (crowd, without.micros) {
                    bench.report.add("B24 spans alone", spans_alone()?, Some(micros * ALLOWED));
                }
                for (way, (pace, exported)) in paces.into_iter().skip(1) {
                    let key = format!("{drain}{}", WAYS[way].0);
                    bench.report.add(&key, pace.per_second, Some(without.per_second));
                    bench.add_cost(&key, pace, without);
                    bench.report.add(&format!("{key} spans"), exported / steps(crowd, count), None);
                }
                count = for_a_round(bench, crowd, without.per_second);
            }
        }
        Ok(())
    }

    /// The processor time that OpenTelemetry alone takes for the exported spans of a step, in microseconds: five spans for a
    /// saga of three steps, with as many attributes as those of the engine. What its full queue drops takes less.
    fn spans_alone() -> Outcome<f64> {
        let provider = SdkTracerProvider::builder().with_batch_exporter(Counting(Arc::default())).build();
        let tracer = provider.tracer("scoop-bench");
        let before = family_processor_seconds(std::process::id());
        for saga in 0..SAGAS_ALONE {
            for span in 0..SPANS_OF_A_SAGA {
                let id = format!("{saga:032x}{span:04x}");
                let attributes = vec![
                    KeyValue::new("kind", "step"),
                    KeyValue::new("saga", "idle"),
                    KeyValue::new("step", "first"),
                    KeyValue::new("run", id.clone()),
                    KeyValue::new("root", id.clone()),
                    KeyValue::new("is_root", true),
                    KeyValue::new("hierarchy", id),
                    KeyValue::new("topic", "idle"),
                    KeyValue::new("attempt", 0),
                    KeyValue::new("outcome", "done"),
                ];
                let builder = tracer.span_builder("idle.first").with_start_time(SystemTime::now());
                builder.with_attributes(attributes).start(&tracer).end();
            }
        }
        let seconds = family_processor_seconds(std::process::id()) - before;
        provider.shutdown()?;
        Ok(seconds / f64::from(SAGAS_ALONE * STEPS_OF_A_SAGA) * 1_000_000.0)
    }

    /// A drain, with all telemetry on if a share of the traces is given that is sampled, and how many spans were exported.
    async fn observed(bench: &Bench, crowd: Crowd, count: i64, share: Option<f64>) -> Outcome<(Pace, f64)> {
        let Some(share) = share else { return Ok((launched_singly(bench, crowd, count).await?, 0.0)) };
        let exported = Arc::new(AtomicU64::new(0));
        let exporter = Counting(exported.clone());
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter);
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
        let provider = provider.with_sampler(sampler).build();
        // With the settings of the guide.
        let traces = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("scoop-bench"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(scoop::SampledTraces);
        let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(traces);
        let recorder = PrometheusBuilder::new().build_recorder();
        // For this thread, on which the whole program runs.
        let pace = {
            let _metrics = metrics::set_default_local_recorder(&recorder);
            let _traces = tracing::subscriber::set_default(subscriber);
            launched_singly(bench, crowd, count).await?
        };
        provider.shutdown()?;
        tracing::callsite::rebuild_interest_cache();
        // Far below the precision of a float.
        Ok((pace, exported.load(Ordering::Relaxed) as f64))
    }

    /// A drain of messages that are launched each by itself: those of one launch are in one trace, so that they would all be
    /// sampled, or none.
    async fn launched_singly(bench: &Bench, crowd: Crowd, count: i64) -> Outcome<Pace> {
        let database = bench.server.database().await?;
        let client = database.client().await?;
        if crowd == Crowd::Idles {
            drain::launch_singly(count, move |n| client.launch(Idle { n }).into_future()).await?;
        } else {
            drain::launch_singly(count, move |n| client.launch(Insert { n }).into_future()).await?;
        }
        let pace = drain::drain(bench, &database, crowd, count).await?;
        bench.server.remove(database).await?;
        Ok(pace)
    }

    /// Counts spans, and drops them.
    #[derive(Debug)]
    struct Counting(Arc<AtomicU64>);

    impl SpanExporter for Counting {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.fetch_add(u64::try_from(batch.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
            Ok(())
        }
    }
}
