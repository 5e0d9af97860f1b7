//! Fuzz tests of values from the database, which other programs or people may have written. The documents are nearly
//! right, and wrong in one place or several. Reading must not panic, and a value that was read survives a round trip.
//!
//! A short form runs with the tests. The long form is the same with more cases: see `docs/development/testing.md`.

mod mutation;

use proptest::prelude::*;
use scoop_core::{
    CodedError, Context, ContextError, Deadline, DeadlineKind, Direction, Error, EventKind, Failure,
    FailureCode, Lineage, Missed, Overlap, SleepUntil,
};
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use self::mutation::{document, scrambled};

/// Stored failures: of this implementation, of others, and with the value of an error.
const FAILURES: &[&str] = &[
    r#"{"message":"none left","type":"fuzz.out","source":"stock[scoop-rs:1]","stackTrace":[{"fileName":"src/shelf.rs","lineNumber":42,"className":null,"functionName":"take"}],"causes":[{"message":"{\"sku\":\"chair\",\"left\":2}","type":"scoop:data","source":"stock[scoop-rs:1]","stackTrace":[],"causes":[]}]}"#,
    r#"{"message":"Child failure occurred while suspended in step [reserve]","type":"io.github.gabrielshanahan.scoop.coroutine.eventloop.ChildRolledBackException","source":"orders[0190]","stackTrace":[],"causes":[{"message":"<no message>","type":"io.github.gabrielshanahan.scoop.coroutine.structuredcooperation.ParentSaidSoException","source":"stock[jvm]","stackTrace":[],"causes":[{"message":"none","type":"com.shop.Stock$Out","source":"stock[jvm]","stackTrace":[{"fileName":"<unknown filename>","lineNumber":-2,"className":"com.shop.Stock","functionName":"take"}],"causes":[]}]}]}"#,
    r#"{"message":"Child rollback failure occurred while suspended in step [x]","type":"ChildRollbackFailedException","source":"a[b]","stackTrace":[],"causes":[{"message":"customer left","type":"CancellationRequestedException","source":"till","stackTrace":[],"causes":[]},{"message":"<no message>","type":"GaveUpException","source":"a[b]","stackTrace":[],"causes":[]}]}"#,
];

/// Stored contexts, with all elements that this crate reads.
const CONTEXTS: &[&str] = &[
    r#"{"HappyPathDeadlineKey":{"deadline":"2026-06-25T10:31:37.123456Z","source":"root handler","trace":[{"HappyPathDeadlineKey":{"deadline":"9999-12-31T23:59:59.999999Z","source":"root system","trace":[]}}]},"Tenant":{"name":"Northwind","rate":1.10}}"#,
    r#"{"AbsoluteDeadlineKey":{"deadline":"2026-06-25T10:31:37+02:00","source":"a","trace":[]},"RollbackDeadlineKey":{"deadline":"2026-06-25T10:31:37.1-11:30","source":"b"},"RollbackPathDeadlineKey":{"deadline":"2026-06-25T08:31:37Z","source":"c","trace":[{"deadline":"2027-01-01T00:00:00Z","source":"bare","trace":[]}]}}"#,
    r#"{"SleepUntilKey":{"wakeAfter":"2026-06-25T10:31:37.123456Z"},"RunCountKey":{"value":7},"TryFinallyKey":{"finallyRunForSteps":["a","b"]}}"#,
];

/// Instants as in documents, and at the ends of the representable range.
const INSTANTS: &[&str] = &[
    "2026-06-25T10:31:37.123456Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.999999999-23:59",
    "0001-01-01T00:00:00+23:59",
    "0000-01-01T00:00:00Z",
    "2016-12-31T23:59:60Z",
];

const KINDS: [DeadlineKind; 3] = [DeadlineKind::HappyPath, DeadlineKind::Rollback, DeadlineKind::Absolute];

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{left} of {sku} are left")]
struct Out {
    sku: String,
    left: i8,
}

impl FailureCode for Out {
    const CODE: &'static str = "fuzz.out";
}

inventory::submit! { CodedError::new::<Out>() }

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_failure_from_anywhere(text in document(FAILURES)) {
        let Ok(failure) = serde_json::from_str::<Failure>(&text) else {
            return Ok(());
        };
        let written = serde_json::to_string(&failure).expect("a failure is JSON");
        let read: Failure = serde_json::from_str(&written).expect("what was read can be read");
        prop_assert_eq!(&read, &failure);
        prop_assert!(!failure.message.trim().is_empty());
        prop_assert!(failure.report().ends_with('\n') && failure.contains(&read));
        prop_assert!(!failure.to_string().is_empty() && !failure.root_causes().is_empty());
        prop_assert!(failure.find_all::<Out>().len() >= usize::from(failure.find::<Out>().is_some()));
        prop_assert!(failure.find::<Out>().is_none() || failure.has_code(Out::CODE));
        // It can also be read as a cause of another failure.
        let above = Failure::gave_up("s[w]", vec![failure.clone(), read]);
        let above = Error::failure(above).into_failure("elsewhere");
        let written = serde_json::to_string(&above).expect("a failure is JSON");
        prop_assert_eq!(serde_json::from_str::<Failure>(&written).expect("it is not too deep"), above);
    }

    #[test]
    fn a_context_from_anywhere(text in document(CONTEXTS), other in document(CONTEXTS)) {
        let Ok(context) = serde_json::from_str::<Context>(&text) else {
            return Ok(());
        };
        let written = serde_json::to_string(&context).expect("a context is JSON");
        prop_assert_eq!(&serde_json::from_str::<Context>(&written).expect("what was read can be read"), &context);
        let other: Context = serde_json::from_str(&other).unwrap_or_default();
        let both = context.clone().overlaid_by(&other);
        for (key, text) in both.iter() {
            prop_assert_eq!(Some(text), other.raw(key).or(context.raw(key)));
        }
        prop_assert!(context.bytes() >= context.iter().map(|(_, text)| text.len()).sum::<usize>());
        if let Some(time) = both.not_before() {
            can_be_told(time)?;
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let now = OffsetDateTime::UNIX_EPOCH + Duration::days(365 * 56);
            for time in both.give_up_at(direction) {
                can_be_told(time)?;
            }
            for failure in both.missed_deadlines(direction, now, None, "s[w]") {
                let written = serde_json::to_string(&failure).expect("a failure is JSON");
                prop_assert!(!written.contains("\\u0000"), "{written}");
            }
        }
    }

    #[test]
    fn a_deadline_from_anywhere(text in document(CONTEXTS), at in instant(), source in scrambled(&["root handler"])) {
        let mut context: Context = serde_json::from_str(&text).unwrap_or_default();
        let Ok(at) = OffsetDateTime::parse(&at, &Rfc3339) else {
            return Ok(());
        };
        let newer = Deadline::new(at, source.replace('\0', ""));
        can_be_told(newer.at())?;
        for kind in KINDS {
            let Ok(older) = context.deadline(kind) else {
                prop_assert!(context.tighten(kind, newer.clone()).is_err(), "an unreadable deadline stays");
                continue;
            };
            if let Err(error) = context.tighten(kind, newer.clone()) {
                // Only for a text that cannot come from a database.
                prop_assert!(matches!(error, ContextError::Nul { .. }), "{error}");
                continue;
            }
            let expected = older.map_or(newer.clone(), |older| Deadline::combined(older, newer.clone()));
            let read = context.deadline(kind);
            let read = read.expect("what was written can be read").expect("there is one");
            // The traces are not compared: entries of a fuzzed trace may have traces themselves.
            prop_assert_eq!((read.at(), read.source()), (expected.at(), expected.source()));
            prop_assert!(read.at() <= newer.at());
        }
    }

    #[test]
    fn a_sleep_until_any_time(at in instant()) {
        let Ok(at) = OffsetDateTime::parse(&at, &Rfc3339) else {
            return Ok(());
        };
        let mut context = Context::default();
        context.set(SleepUntil::new(at)).expect("it can be stored");
        let time = context.not_before().expect("it can be read");
        can_be_told(time)?;
        prop_assert!((time - at).abs() < Duration::microseconds(1) || (time.year() == 1 || time.year() == 9999));
    }

    #[test]
    fn a_name_of_a_kind_from_anywhere(text in scrambled(&["SEEN", "ROLLBACK_EMITTED", "skip", "once", "allow"])) {
        for kind in EventKind::ALL {
            prop_assert_eq!(EventKind::from_name(&text) == Some(kind), kind.as_str() == text);
        }
        prop_assert!(Missed::named(&text).is_none_or(|it| it.as_str() == text));
        prop_assert!(Overlap::named(&text).is_none_or(|it| it.as_str() == text));
    }

    #[test]
    fn a_lineage_from_anywhere(ids in proptest::collection::vec(any::<u128>(), 0..200)) {
        let ids: Vec<_> = ids.into_iter().map(Uuid::from_u128).collect();
        let lineage = Lineage::from_ids(ids.clone());
        prop_assert_eq!(lineage.as_ref().map(Lineage::ids), (!ids.is_empty()).then_some(&*ids));
        prop_assert_eq!(lineage.and_then(|it| it.parent()), Lineage::from_ids(ids[..ids.len().saturating_sub(1)].into()));
    }

    /// The value of an error is a text in a failure, perhaps of another version of the error type.
    #[test]
    fn a_value_of_an_error_from_anywhere(json in document(&[r#"{"sku":"chair","left":2}"#, "7", "{}"])) {
        let data = Failure::new("scoop:data", &json, "stock[w]");
        let failure = Failure::new(Out::CODE, "none left", "stock[w]").caused_by([data]);
        let expected = serde_json::from_str::<Out>(&json.replace('\0', "")).ok();
        prop_assert_eq!(failure.find::<Out>(), expected);
        prop_assert_eq!(failure.root_causes(), [&failure]);
    }
}

fn instant() -> impl Strategy<Value = String> {
    scrambled(INSTANTS)
}

/// Requires an instant that PostgreSQL can read: without year 0 and without a large UTC offset.
fn can_be_told(at: OffsetDateTime) -> Result<(), TestCaseError> {
    prop_assert!((1..=9999).contains(&at.year()) && at.offset().is_utc(), "{at}");
    prop_assert!(at.format(&Rfc3339).is_ok(), "{at}");
    Ok(())
}
