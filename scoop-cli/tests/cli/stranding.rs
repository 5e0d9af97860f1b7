//! What `scoop check` says of a lock file and the unfinished runs.

use std::path::PathBuf;

use expect_test::expect;
use serde_json::{Value, json};

use crate::support::Shop;

/// A lock file of this content, which is removed in the end.
struct LockFile(PathBuf);

impl LockFile {
    fn new(name: &str, content: &str) -> Self {
        let file = Self(std::env::temp_dir().join(format!("scoop-{name}-{}.lock", std::process::id())));
        std::fs::write(&file.0, content).unwrap();
        file
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn step(name: &str) -> Value {
    json!({ "name": name, "compensated": false, "handles_child_failure": false })
}

/// The lock file of the program of the shop.
fn of_the_shop() -> Value {
    let waits = json!({ "name": "collect (waiting for signal)", "kind": "wait", "compensated": false,
        "handles_child_failure": false, "awaits": "shop.paid" });
    let reserve = json!({ "name": "reserve", "compensated": true, "handles_child_failure": false });
    json!({
        "sagas": {
            "orders": { "topics": ["shop.orders"], "steps": [reserve, step("pack")], "types": {} },
            "payments": { "topics": ["shop.payments"], "steps": [waits, step("collect")], "types": {} },
        },
        "context": [],
        "signals": ["shop.paid"],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_strands_live_runs_is_told_with_their_number() {
    let mut shop = Shop::open().await;
    shop.unpaid_order(1).await;
    shop.unpaid_order(2).await;
    let mut lock = of_the_shop();
    let same = LockFile::new("same", &lock.to_string());
    shop.run(&["check", same.path()]).await.shows(expect![[r#"
        no unfinished run would be stranded
    "#]]);
    assert_eq!(shop.run(&["check", same.path(), "--json"]).await.stdout, "");

    lock["sagas"]["orders"]["steps"][0]["was"] = json!(["reserve"]);
    lock["sagas"]["orders"]["steps"][0]["name"] = json!("book");
    let orders = lock["sagas"].as_object_mut().unwrap().remove("orders").unwrap();
    lock["sagas"]["buying"] = orders;
    lock["sagas"]["buying"]["was"] = json!(["orders"]);
    let renamed = LockFile::new("renamed", &lock.to_string());
    assert_eq!(shop.run(&["check", renamed.path()]).await.code, 0, "it has the former names");

    lock["sagas"]["buying"]["steps"][0]["was"] = json!([]);
    lock["sagas"]["payments"]["steps"][0]["awaits"] = json!("shop.refunded");
    let breaking = LockFile::new("breaking", &lock.to_string());
    shop.run(&["check", breaking.path()]).await.shows(expect![[r#"
        exit 1
        SAGA STEP LIVE RUNS CHANGE
        buying reserve 2 saga `buying` has no step `reserve` any more, where the run stands, and `book` stands in its place; if that is the same step under another name, say so: `#[step(was = "reserve")]`
        buying reserve 2 saga `buying` has no step `reserve`, which has a compensation in the definition under which the run completed it; keep that step, or write a step with `was = "reserve"` whose compensation undoes that and nothing else
        payments collect (waiting for signal) 2 no step awaits signal `shop.paid` any more
    "#]]);
    shop.run(&["check", breaking.path(), "--json"]).await.shows(expect![[r#"
        exit 1
        {"saga":"buying","change":"saga `buying` has no step `reserve` any more, where the run stands, and `book` stands in its place; if that is the same step under another name, say so: `#[step(was = \"reserve\")]`","step":"reserve","runs":2,"capped":false}
        {"saga":"buying","change":"saga `buying` has no step `reserve`, which has a compensation in the definition under which the run completed it; keep that step, or write a step with `was = \"reserve\"` whose compensation undoes that and nothing else","step":"reserve","runs":2,"capped":false}
        {"saga":"payments","change":"no step awaits signal `shop.paid` any more","step":"collect (waiting for signal)","runs":2,"capped":false}
    "#]]);

    lock["sagas"]["payments"]["topics"] = json!(["shop.pay"]);
    lock["sagas"].as_object_mut().unwrap().remove("buying");
    let left = LockFile::new("left", &lock.to_string());
    shop.run(&["check", left.path()]).await.shows(expect![[r#"
        exit 1
        SAGA STEP LIVE RUNS CHANGE
        payments collect (waiting for signal) 2 the saga has left topic `shop.payments`
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_is_missing_or_no_lock_file_is_named_with_its_mistake() {
    let mut shop = Shop::open().await;
    let missing = shop.run(&["check", "/no/such/saga.lock"]).await;
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.starts_with("error: /no/such/saga.lock: No such file"), "{}", missing.stderr);
    let mut newer = of_the_shop();
    newer["sagas"]["orders"]["queue"] = json!(7);
    for (name, content, mistake) in [
        ("text", "sagas\n".to_owned(), "expected value at line 1 column 1"),
        ("list", "{\"sagas\":\n[]}".to_owned(), "invalid type: sequence, expected a map at line 2 column 0"),
        ("newer", serde_json::to_string_pretty(&newer).unwrap(), "unknown field `queue`, expected one of "),
    ] {
        let file = LockFile::new(name, &content);
        let refused = shop.run(&["check", file.path()]).await;
        assert_eq!(refused.code, 2, "{name}: {}", refused.stderr);
        let told = format!(
            "error: {}: this is no lock file of a program, or one of another version: {mistake}",
            file.path()
        );
        assert!(
            refused.stderr.starts_with(&told) && refused.stderr.contains(" at line "),
            "{}",
            refused.stderr
        );
    }
}
