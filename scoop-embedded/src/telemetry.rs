//! The events of private servers. They are an interface, listed in `docs/reference/telemetry.md`.

#[cfg(test)]
#[path = "../../scoop-runtime/src/telemetry/tests/guide_events.rs"]
mod guide_events;

use tracing::{debug, warn};

use crate::EmbeddedError;

const TARGET: &str = "scoop::embedded";

/// The maximum length of a text, in characters.
const CHARS_MAX: usize = 1_000;

/// A server did not stop as requested.
pub(crate) fn stop_failed(error: &EmbeddedError) {
    warn!(
        name: "stop_failed", target: TARGET, event = "stop_failed", error = one_line(error),
        "private PostgreSQL not stopped as requested"
    );
}

/// The folder of a server could not be removed.
pub(crate) fn folder_left(error: &EmbeddedError) {
    warn!(
        name: "folder_left", target: TARGET, event = "folder_left", error = one_line(error),
        "folder of a private PostgreSQL left behind"
    );
}

/// The folder of a killed program could not be removed; the next start retries.
pub(crate) fn sweep_failed(error: &EmbeddedError) {
    debug!(
        name: "sweep_failed", target: TARGET, event = "sweep_failed", error = one_line(error),
        "folder of a killed program not removed"
    );
}

/// The error, which may quote the output of a program, in one line of a bounded length.
fn one_line(error: &EmbeddedError) -> String {
    error.to_string().escape_debug().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Collects the reported events.
    #[derive(Clone, Default)]
    struct Reported(Arc<Mutex<BTreeSet<guide_events::Row>>>);

    impl<S: Subscriber> Layer<S> for Reported {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            let fields = metadata.fields().iter().map(|field| field.name().to_owned());
            let fields = fields.filter(|field| !["event", "message"].contains(&&**field)).collect();
            let [target, name, level] = [metadata.target(), metadata.name(), metadata.level().as_str()];
            self.0.lock().unwrap().insert((target.to_owned(), name.to_owned(), level.to_owned(), fields));
        }
    }

    #[test]
    fn page_of_the_guide_lists_exactly_the_reported_events() {
        let reported = Reported::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(reported.clone()), || {
            for report in [stop_failed, folder_left, sweep_failed] {
                report(&EmbeddedError::RuntimeGone);
            }
        });
        let listed: BTreeSet<_> =
            guide_events::rows().into_iter().filter(|(target, ..)| target == TARGET).collect();
        assert_eq!(*reported.0.lock().unwrap(), listed);
    }

    #[test]
    fn output_of_a_program_is_reported_in_one_bounded_line() {
        let output = format!("one\n\u{1b}[31mtwo\u{202e}{}", "ž".repeat(2_000));
        let text = one_line(&EmbeddedError::CommandFailed { command: "pg_ctl".into(), output });
        assert!(text.starts_with(r"`pg_ctl` failed: one\n\u{1b}[31mtwo\u{202e}žž"), "{text}");
        assert_eq!(text.chars().count(), CHARS_MAX);
    }
}
