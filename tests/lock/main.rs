//! The lock file of a program, and what is said of its differences. A binary of its own, since a lock file is about all that is
//! linked.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use scoop::prelude::*;
use scoop::testing::{LockError, check_lock};
use serde_json::{Value, json};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed", reply = Receipt)]
struct OrderPlaced {
    order: u64,
    note: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Reservation {
    shelf: String,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "payments.confirmed", retention = "1 day")]
struct PaymentConfirmed {
    cents: u64,
}

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "tenant")]
struct Tenant(String);

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<Reservation> {
        let shelf = scope.get::<Tenant>()?.map_or_else(|| "B3".into(), |tenant| tenant.0);
        Ok(Reservation { shelf })
    }

    async fn release(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Reservation, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step(awaits(PaymentConfirmed, by = number))]
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: &PaymentConfirmed,
    ) -> Result<()> {
        scope.reply(order, Receipt { cents: paid.cents })
    }

    async fn number(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
        Ok(order.order.to_string())
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Reservation) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.picked")]
struct OrderPicked {
    order: u64,
}

#[derive(Default)]
struct Shipping;

#[saga]
#[subscribes(join(OrderPlaced, OrderPicked, by = order))]
impl Shipping {
    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
        Ok(())
    }
}

const FILE: &str = "tests/lock/saga.lock";

#[test]
fn program_is_as_its_lock_file_says() {
    scoop::testing::assert_lock!(FILE);
}

/// A lock file that differs from that of the program.
struct Other(PathBuf);

impl Other {
    fn of(change: impl FnOnce(&mut Value)) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
        let mut lock = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        change(&mut lock);
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let other = env::temp_dir().join(format!("scoop-{}-{number}.lock", std::process::id()));
        fs::write(&other, lock.to_string()).unwrap();
        Self(other)
    }

    /// What is said of the differences, a line each.
    fn told(&self) -> Vec<String> {
        let error = check_lock(&self.0).expect_err("it differs");
        assert!(error.to_string().contains("`SCOOP_LOCK=write`"), "{error}");
        match error {
            LockError::Changed { changes, .. } => {
                changes.iter().map(|change| format!("{}: {}", change.class, change.what)).collect()
            }
            other => vec![other.to_string()],
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The only difference, of a program that had this before.
fn only(change: impl FnOnce(&mut Value)) -> String {
    let told = Other::of(change).told();
    let [only] = &told[..] else { panic!("{told:#?}") };
    only.clone()
}

fn remove(list: &mut Value, at: usize) {
    list.as_array_mut().expect("it is a list").remove(at);
}

#[test]
fn what_is_new_is_safe() {
    let told = only(|lock| drop(lock["sagas"].as_object_mut().unwrap().remove("checkout")));
    assert_eq!(told, "safe: saga `checkout` is new");
    let told = only(|lock| remove(&mut lock["sagas"]["checkout"]["steps"], 3));
    assert!(told.starts_with("safe: saga `checkout` has other steps: "), "{told}");
    let told = only(|lock| lock["signals"] = json!([]));
    assert_eq!(told, "safe: signal `payments.confirmed` is new");
    let told = only(|lock| lock["context"] = json!([]));
    assert_eq!(told, "safe: context key `tenant` is new");
    let told = only(|lock| remove(&mut lock["sagas"]["checkout"]["topics"], 0));
    assert_eq!(told, "safe: saga `checkout` has a further topic, `orders.placed`");
}

#[test]
fn type_that_reads_what_was_stored_is_safe() {
    let narrower = json!(["[] fields [\"order\"]", "[0] u32", "[] requires [\"order\"]"]);
    let told = only(|lock| lock["sagas"]["checkout"]["types"]["message orders.placed"] = narrower);
    assert_eq!(
        told,
        "safe: saga `checkout`, `message orders.placed`: the type has changed, and reads what was stored"
    );
}

#[test]
fn name_that_is_lost_needs_was() {
    let told = only(|lock| {
        let sagas = lock["sagas"].as_object_mut().unwrap();
        let saga = sagas.remove("checkout").unwrap();
        sagas.insert("buying".into(), saga);
    });
    assert_eq!(
        told,
        "needs `was`: saga `buying` is gone, and `checkout` has its steps; write `#[saga(was = \"buying\")]` there"
    );
    let told = Other::of(|lock| lock["sagas"]["checkout"]["steps"][0]["name"] = json!("book")).told();
    let renamed = told.iter().find(|it| it.starts_with("needs `was`"));
    assert!(renamed.is_some_and(|it| it.contains("`#[step(was = \"book\")]`")), "{told:#?}");
}

#[test]
fn what_strands_runs_breaks_runs_under_way() {
    let told =
        only(|lock| lock["sagas"]["mailing"] = json!({ "topics": ["mails"], "steps": [], "types": {} }));
    assert!(told.starts_with("breaks runs under way: saga `mailing` is gone"), "{told}");
    let told = only(|lock| lock["sagas"]["checkout"]["topics"] = json!(["orders.placed", "orders"]));
    assert!(told.starts_with("breaks runs under way: saga `checkout` has left topic `orders`"), "{told}");
    let told = only(|lock| lock["sagas"]["checkout"]["steps"][1]["awaits"] = json!("payments.received"));
    assert!(told.contains("does not await signal `payments.received` any more"), "{told}");
    let told = only(|lock| lock["sagas"]["checkout"]["steps"][3]["was"] = json!(["send"]));
    assert!(told.contains("step `ship` has lost its former name `send`"), "{told}");
    // The compensation of `reserve` takes what it returns, and so does `ship`.
    let told =
        Other::of(|lock| drop(lock["sagas"]["checkout"]["types"].as_object_mut().unwrap().remove("reserve")))
            .told();
    assert_eq!(told.iter().filter(|it| it.starts_with("breaks runs under way")).count(), 2, "{told:#?}");
    assert!(told[0].contains("takes what `reserve` returns"), "{told:#?}");
    let told = only(|lock| {
        lock["sagas"]["shipping (join)"]["topics"] = json!(["orders.picked", "orders.placed", "orders"])
    });
    assert!(
        told.starts_with("breaks runs under way: saga `shipping (join)` has left topic `orders`"),
        "{told}"
    );
    let told = only(|lock| lock["sagas"]["checkout"]["steps"][3]["compensated"] = json!(true));
    assert!(told.contains("step `ship` has no compensation any more"), "{told}");
    let told = Other::of(|lock| {
        let steps = lock["sagas"]["checkout"]["steps"].as_array_mut().unwrap();
        steps.swap(0, 3);
    })
    .told();
    assert!(
        told.iter().any(|it| it.starts_with("breaks runs under way") && it.contains("was moved")),
        "{told:#?}"
    );
}

#[test]
fn what_cannot_be_read_breaks_stored_data() {
    let wider = json!([
        "[] fields [\"order\", \"note\"]",
        "[0] string",
        "[1] option",
        "[1, 0] string",
        "[] requires [\"order\"]"
    ]);
    let told = only(|lock| lock["sagas"]["checkout"]["types"]["message orders.placed"] = wider);
    assert_eq!(
        told,
        "breaks stored data: saga `checkout`, `message orders.placed`: in what was stored, `order` was a string and is a u64"
    );
    let told = only(|lock| lock["sagas"]["checkout"]["types"]["reserve"] = json!(["[] fields []"]));
    assert!(told.ends_with("in what was stored, `shelf` is missing"), "{told}");
    let told = only(|lock| lock["signals"] = json!(["payments.confirmed", "payments.refused"]));
    assert!(told.starts_with("breaks stored data: signal `payments.refused` is gone"), "{told}");
}

#[test]
fn file_that_is_missing_or_none_says_how_to_write_one() {
    let missing = check_lock("no/such/saga.lock").expect_err("it is missing");
    assert!(matches!(missing, LockError::File { .. }), "{missing}");
    assert!(missing.to_string().contains("`SCOOP_LOCK=write`"), "{missing}");
    let told = Other::of(|lock| *lock = json!({ "sagas": 7 })).told();
    assert!(told[0].contains("restore it"), "{told:?}");
}
