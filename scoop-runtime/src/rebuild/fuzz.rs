//! For any record, even an impossible one: the resulting working set contains each run once, and the computation
//! neither panics nor recurses endlessly.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use scoop_core::{Context, EventKind, Lineage, Wait};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{OperatorAction, RecordedEvent, RecordedExecution, SubscriptionPeriod, rebuild};

/// The lineages of the runs of a hierarchy; the last of them are invalid.
const PLACES: [&[u128]; 8] =
    [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4], &[1, 5], &[1, 2, 6], &[1, 2, 1], &[1, 3, 2]];

/// The message that each run handles, so that most histories are partly consistent.
fn message_of(place: &[u128]) -> Uuid {
    Uuid::from_u128(100 + place[place.len() - 1])
}

fn row() -> impl Strategy<Value = RecordedEvent> {
    let context = prop_oneof![
        4 => Just(json!({})),
        1 => Just(json!({ "AbsoluteDeadlineKey": { "deadline": "1970-01-01T00:00:09Z", "source": "a" } })),
        1 => Just(json!({ "RollbackPathDeadlineKey": { "deadline": "soon" } })),
        1 => Just(json!({ "SleepUntilKey": { "wakeAfter": "1970-01-01T00:00:20Z" } })),
    ];
    let count = || option::of(prop_oneof![0..3i32, Just(i32::MAX), Just(-1)]);
    let step = option::of(select(&["a", "b", "Rollback of a[0,]"][..]));
    let (place, of_other) = (select(&PLACES[..]), option::weighted(0.4, select(&PLACES[..])));
    let kind = select(&EventKind::ALL[..]);
    (
        (place, of_other, kind, 0..40i64),
        (step, option::of(select(&["a", "b"][..])), count(), context, any::<bool>()),
        option::weighted(0.2, 0..60i64),
    )
        .prop_map(|((place, other, kind, second), (step, jump, handling, context, handled), wait)| {
            RecordedEvent {
                lineage: Lineage::from_ids(place.iter().copied().map(Uuid::from_u128).collect())
                    .expect("ids"),
                message: message_of(other.unwrap_or(place)),
                kind,
                handler: handled.then(|| "handler".to_owned()),
                topic: "topic".into(),
                step: step.map(str::to_owned),
                jump: jump.map(str::to_owned),
                definition: None,
                handling,
                exception: None,
                context: serde_json::from_value::<Context>(context).expect("an object"),
                at: OffsetDateTime::UNIX_EPOCH + Duration::seconds(second),
                redelivered_at: None,
                wait: wait.map(|second| Wait::until(OffsetDateTime::UNIX_EPOCH + Duration::seconds(second))),
                begins: (second % 7 == 0).then_some(RecordedExecution {
                    number: 1,
                    message: Uuid::nil(),
                    suspensions: 2,
                }),
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_record_gives_a_consistent_working_set(
        mut rows in vec(row(), 0..24),
        revived in vec((select(&PLACES[..]), 0..40i64), 0..2),
        in_order in prop::bool::weighted(0.9),
    ) {
        if in_order {
            rows.sort_by_key(|row| row.at);
        }
        let at = |second| OffsetDateTime::UNIX_EPOCH + Duration::seconds(second);
        let id = |place: &[u128]| Uuid::from_u128(place[place.len() - 1]);
        let revivals: Vec<_> =
            revived.iter().map(|(place, second)| OperatorAction { run: id(place), at: at(*second), resolves: false }).collect();
        let listened = |handler: &str, until| {
            let (topic, handler) = ("topic".into(), handler.to_owned());
            SubscriptionPeriod { topic, handler, since: at(0), until, dropped: false }
        };
        let topology = [listened("handler", None), listened("late", Some(at(20)))];
        let rebuilt = rebuild(&rows, &revivals, &topology, at(30));
        let mut ids = BTreeSet::new();
        for run in &rebuilt {
            prop_assert!(ids.insert(run.lineage.last().copied()), "{run:?} is there twice");
            let emitted_or_seen = rows.iter().any(|row| run.lineage.starts_with(row.lineage.ids()));
            prop_assert!(emitted_or_seen, "{run:?} comes from nowhere");
            prop_assert!(serde_json::to_value(run).is_ok());
        }
    }
}
