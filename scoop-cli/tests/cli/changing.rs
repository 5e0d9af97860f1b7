//! Commands that change something: launches, signals, requests and repairs.

use std::time::Duration;

use expect_test::expect;
use scoop::operate::OperateExt as _;
use scoop::pauses::PauseTarget;
use scoop::tree::{RunState, Tree};
use scoop::{Outcome, RunPhase};
use scoop_test_support::{Ends as _, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{Mail, Mails, OTHER_WORKER, Plan, Report, Shop, Stocktaking, interrupt};

#[tokio::test(flavor = "multi_thread")]
async fn message_is_launched_by_topic_and_json() {
    let mut shop = Shop::open().await;
    let order = r#"{"number":1,"plan":"Commit"}"#;
    shop.run(&["launch", "shop.orders", order, "--dry-run"]).await.shows(expect![[r#"
        would launch a message on topic `shop.orders` to orders
    "#]]);
    shop.run(&["launch", "shop.orders", order, "--yes", "--wait", "--unique", "order 1"]).await.shows(
        expect![[r#"
        <id 1>
        committed
    "#]],
    );
    let fails = r#"{"number":2,"plan":{"Fail":"no chairs left"}}"#;
    shop.run_with(&["launch", "shop.orders", "-", "--yes", "--wait", "--json"], fails).await.shows(expect![
        [r#"
        exit 1
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":null,"text":null}
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":"rolled back","text":"rolled back: no chairs left"}
    "#]
    ]);
    shop.run(&["launch", "shop.order", order, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.order` (add --without-handler to launch the message all the same); did you mean `shop.orders`?
    "#]]);
    shop.run(&["launch", "shop.order", "null", "--yes", "--wait", "--without-handler"]).await.shows(expect![
        [r#"
        exit 1
        <id 4>
        no handlers: no saga was subscribed
    "#]
    ]);
    shop.run(&["launch", "shop.orders", "{", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the payload is no JSON: EOF while parsing an object at line 1 column 1
    "#]]);
    // The key finds the order that was launched with it.
    let again = shop.run(&["launch", "shop.orders", order, "--yes", "--unique", "order 1", "--json"]).await;
    let found = shop.scoop.operate().runs().find_by_key("shop.orders", "order 1").await.unwrap();
    assert_eq!(again.field("hierarchy"), [found.id().to_string()]);
    let launch = ["launch", "shop.orders", order, "--unique", "order 1"];
    shop.run(&[&launch[..], &["--dry-run"]].concat()).await.shows(expect![[r#"
        would launch nothing: a message was launched with this key before, in hierarchy <id 1>
    "#]]);
    shop.run(&[&launch[..], &["--yes"]].concat()).await.shows(expect![[r#"
        <id 1>
        2> nothing was launched: a message was launched with this key before, in hierarchy <id 1>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_with_a_key_that_becomes_free_meanwhile_is_reported_as_one() {
    let mut shop = Shop::open().await;
    let earlier = shop.order(1, Plan::Commit).await;
    let lock = "BEGIN; LOCK TABLE scoop.message IN SHARE ROW EXCLUSIVE MODE";
    let mut blocker = shop.db.pool().begin_with(lock).await.unwrap();
    let order = r#"{"number":1,"plan":"Commit"}"#;
    let launch = ["launch", "shop.orders", order, "--unique", "order 1", "--yes"];
    let launch = shop.command(&launch).spawn().unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("the launch waits for the lock", async || shop.db.number(waits).await > 0).await;
    // The command has looked the key up before.
    for statement in [
        "DELETE FROM scoop.message WHERE id IN (
             SELECT message_id FROM scoop.message_event WHERE cooperation_lineage[1] = $1)",
        "DELETE FROM scoop.message_event WHERE cooperation_lineage[1] = $1",
    ] {
        sqlx::query(statement).bind(earlier.id().uuid()).execute(&mut *blocker).await.unwrap();
    }
    blocker.commit().await.unwrap();
    let ran = shop.ended(launch).await;
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{ran:?}");
    assert_eq!(earlier.wait().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_with_a_used_key_that_fails_once_has_perhaps_launched_nothing() {
    let mut shop = Shop::open().await;
    let earlier = shop.order(1, Plan::Commit).await;
    let lock = "BEGIN; LOCK TABLE scoop.message IN SHARE ROW EXCLUSIVE MODE";
    let blocker = shop.db.pool().begin_with(lock).await.unwrap();
    let order = r#"{"number":1,"plan":"Commit"}"#;
    let launch = ["launch", "shop.orders", order, "--unique", "order 1", "--yes"];
    let launch = shop.command(&launch).spawn().unwrap();
    let waiting = "SELECT coalesce(min(pid), 0)::bigint FROM pg_locks
                   WHERE locktype = 'relation' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("the launch waits for the lock", async || shop.db.number(waiting).await > 0).await;
    let first = shop.db.number(waiting).await;
    shop.db.execute(&format!("SELECT pg_terminate_backend({first})")).await;
    eventually("the launch is repeated", async || ![0, first].contains(&shop.db.number(waiting).await)).await;
    blocker.commit().await.unwrap();
    let ran = shop.ended(launch).await;
    ran.shows(expect![[r#"
        <id 1>
        2> perhaps nothing was launched: a message was launched with this key before, in hierarchy <id 1>
    "#]]);
    assert_eq!(ran.stdout.trim_end(), earlier.id().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_that_waits_names_the_hierarchy_before_its_end() {
    let mut shop = Shop::open().await;
    for (number, json) in [(1, &[][..]), (2, &["--json"][..])] {
        let order = format!(r#"{{"number":{number},"plan":"Pay"}}"#);
        let key = format!("order {number}");
        let launch = ["launch", "shop.orders", &order, "--unique", &key, "--yes", "--wait"];
        let mut waiting = shop.command(&[&launch[..], json].concat()).spawn().unwrap();
        let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
        // It has not ended: no signal was sent. The limit only ends the test if there is no line.
        let first = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
        let first = first.expect("a line before the end").unwrap().unwrap();
        let order = shop.scoop.operate().runs().find_by_key("shop.orders", &key).await.unwrap();
        assert!(first.contains(&order.id().to_string()), "{first}");
        shop.scoop.cancel(order.id().uuid(), "a test").await.unwrap();
        let last = lines.next_line().await.unwrap().expect("a line at the end");
        assert!(last.contains("rolled back"), "{last}");
        assert_eq!(shop.ended(waiting).await.code, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_without_an_answer_is_refused() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    let id = order.id().to_string();
    shop.run(&["cancel", &id, "--reason", "the customer left"]).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    shop.run(&["cancel", &id, "--reason", "the customer left", "--dry-run"]).await.shows(expect![[r#"
        would cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting)
    "#]]);
    shop.run(&["cancel", &id, "--reason", "the customer left", "--dry-run", "--json"]).await.shows(expect![
        [r#"
        {"would":"cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting)"}
    "#]
    ]);
    for command in ["cancel", "rollback", "skip", "resolve"] {
        for reason in ["", " "] {
            let ran = shop.run(&[command, &id, "--reason", reason, "--yes"]).await;
            assert!(ran.code == 2 && ran.stderr.contains("the reason is empty"), "{ran:?}");
        }
    }
    assert!(order.tree().await.unwrap().cancellations().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_notifies_the_workers_before_it_ends() {
    // Nothing is found by polling.
    let mut shop = Shop::with(|scoop| scoop.poll_interval(Duration::from_secs(3_600))).await;
    let launch = ["launch", "shop.orders", r#"{"number":1,"plan":"Commit"}"#, "--yes", "--json"];
    let hierarchy = shop.run(&launch).await.field("hierarchy").remove(0);
    let order = shop.scoop.find(hierarchy.parse::<scoop::HierarchyId>().unwrap()).await.unwrap();
    assert_eq!(order.ends().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_the_run_that_awaits_it() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    shop.run(&["signal", "shop.paid", "order 8", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        no run awaits it; it is kept for 7d: signal `shop.paid`, key `order 8`, payload {"cents":990}
    "#]]);
    // A payload in the place of the key is seen.
    shop.run(&["signal", "shop.paid", "{}", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the signal `shop.paid` cannot be sent: no saga that awaits it can read it: it is null, not an object with the fields ["cents"]
    "#]]);
    shop.run(&["signal", "shop.paid", "order 7", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        the signal has reached 1 run
    "#]]);
    assert_eq!(order.wait().await.unwrap(), Outcome::Committed);
    shop.run(&["signal", "shop.payd", "order 7", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no saga has ever awaited a signal `shop.payd` (did you mean `shop.paid`?); correct the name, or first start a program with a saga that awaits it; or add --not-awaited to send it anyway
    "#]]);
    shop.run(&["signal", "shop.payd", "order 7", "--yes", "--not-awaited"]).await.shows(expect![[r#"
        no run awaits it; it is kept for 7d: signal `shop.payd`, key `order 7`, payload null
    "#]]);
    shop.run(&["signal", "", "order 7", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the signal `` cannot be sent: its name has 0 characters; 1 to 180 are possible
    "#]]);
    let id = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a";
    let keep = [
        "signal",
        "shop.paid",
        "order 9",
        r#"{"cents":1}"#,
        "--yes",
        "--id",
        id,
        "--retention",
        "2h",
        "--json",
    ];
    shop.run(&keep).await.shows(expect![[r#"
        {"reached":0,"pauses":[]}
    "#]]);
    shop.run(&keep).await.shows(expect![[r#"
        {"reached":0,"pauses":[]}
    "#]]);
    let kept =
        "SELECT count(*) FROM scoop.signal WHERE key = 'order 9' AND kept_until - sent_at < interval '3 h'";
    assert_eq!(shop.db.number(kept).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_order_is_cancelled_and_finished_one_is_rolled_back() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    let id = order.id().to_string();
    let request = ["--reason", "the customer left", "--source", "support", "--yes"];
    shop.run(&[&["rollback", &id], &request[..]].concat()).await.shows(expect![[r#"
        exit 3
        still running: a run of it is unfinished: repeat the request later, or cancel the run
    "#]]);
    shop.run(&[&["cancel", &id], &request[..]].concat()).await.shows(expect![[r#"
        accepted: the unfinished runs give up
    "#]]);
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
    shop.run(&[&["cancel", &id], &request[..]].concat()).await.shows(expect![[r#"
        exit 3
        already requested: a cancellation was requested before
    "#]]);
    let asked = &order.tree().await.unwrap().cancellations()[0].clone();
    assert_eq!((&*asked.reason, &*asked.source), ("the customer left", "support"));

    let done = shop.order(2, Plan::Commit).await;
    let by_key = ["rollback", "--topic", "shop.orders", "--key", "order 2"];
    shop.run(&[&by_key[..], &request, &["--json"]].concat()).await.shows(expect![[r#"
        {"answer":"accepted","text":"the rollback begins"}
    "#]]);
    assert!(matches!(done.wait().await.unwrap(), Outcome::RolledBack(_)));
    for asked in [&order, &done] {
        let tree = asked.tree().await.unwrap().to_string();
        assert!(tree.contains("the customer left") && !tree.contains("scoop-cli/src/"), "{tree}");
    }
    shop.run(&[&by_key[..], &request].concat()).await.shows(expect![[r#"
        exit 3
        already rolled back: the runs are rolled back already
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_compensation_is_retried_skipped_or_resolved() {
    let mut shop = Shop::open().await;
    let mut runs = vec![];
    for number in 1..=3 {
        let order = shop.order(number, Plan::FailToUndo).await;
        let run = order.tree().await.unwrap().runs()[0].id().to_string();
        runs.push((order, run));
    }
    let reason = ["--reason", "paid back in cash", "--source", "support", "--yes"];
    shop.run(&["retry", &runs[0].1, "--dry-run"]).await.shows(expect![[r#"
        would retry <id 1>, a run of `orders` in hierarchy <id 2> (rollback failed)
    "#]]);
    shop.run(&["retry", &runs[0].1, "--yes"]).await.shows(expect![[r#"
        accepted: the decision is recorded, and the run or the rollback goes on
    "#]]);
    shop.run(&[&["skip", &runs[1].1], &reason[..]].concat()).await.shows(expect![[r#"
        accepted: the decision is recorded, and the run or the rollback goes on
    "#]]);
    shop.run(&[&["resolve", &runs[2].1, "--json"], &reason[..]].concat()).await.shows(expect![[r#"
        {"answer":"accepted","text":"the decision is recorded, and the run or the rollback goes on"}
    "#]]);
    shop.run(&[&["resolve", &runs[2].1], &reason[..]].concat()).await.shows(expect![[r#"
        exit 3
        not failed: the run has no failed rollback, or it was settled before
    "#]]);
    for (order, _) in &runs[1..] {
        assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
        let done = &shop.scoop.operate().failures().interventions(order.id()).await.unwrap()[0];
        assert_eq!((&*done.source, done.note.as_deref()), ("support", Some("paid back in cash")));
    }
    // The bank is still closed.
    let first = &runs[0].0;
    first.comes_to(|tree| matches!(tree.runs()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    let order = first.id().to_string();
    shop.run(&["retry", &order, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: <id 2> is the hierarchy that begins with run <id 1> of `orders`; use <id 1>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_is_paused_and_resumed() {
    let mut shop = Shop::open().await;
    shop.run(&["pauses"]).await.shows(expect![[r#"
        nothing is paused
    "#]]);
    shop.run(&["pause", "--saga", "payments", "--reason", "the bank is away", "--dry-run"]).await.shows(
        expect![[r#"
            would pause saga `payments`
        "#]],
    );
    for options in [&["--dry-run"][..], &["--yes"]] {
        let mistyped = ["pause", "--saga", "payment", "--reason", "the bank is away"];
        shop.run(&[&mistyped[..], options].concat()).await.shows(expect![[r#"
            exit 3
            2> error: no handler was ever registered for saga `payment`; did you mean `payments`?
        "#]]);
    }
    shop.run(&[
        "pause",
        "--saga",
        "payments",
        "--reason",
        "the bank is away",
        "--source",
        "ann",
        "--drain",
        "30s",
        "--yes",
    ])
    .await
    .shows(expect![[r#"
        saga `payments` is paused by ann since <time>: the bank is away; runs in a step: 0
    "#]]);
    shop.run(&["pause", "--everything", "--reason", "no time", "--for-at-most", "0s", "--yes"]).await.shows(
        expect![[r#"
            exit 2
            2> error: a pause for <duration> would end at once; write --for-at-most <duration> or more, or leave it out: then the pause lasts until `scoop resume` ends it
        "#]],
    );
    let launched = shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes", "--json"]).await;
    let hierarchy = launched.field("hierarchy").remove(0);
    shop.run(&["explain", &hierarchy]).await.shows(expect![[r#"
        Run <id 3> of `payments` waits for the end of a pause, for <duration>: saga `payments` is paused by ann since <time>: the bank is away. It goes on when `resume` ends the pause of saga `payments`.
    "#]]);
    shop.run(&["explain", &hierarchy, "--json"]).await.shows(expect![[r#"
        {"run":"<id 3>","hierarchy":"<id 1>","parent":null,"handler":"payments","topic":"shop.payments","message":"<id 2>","state":"pending","since":"<time>","queued_at":null,"began_at":null,"queued_ms":null,"took_ms":null,"waits_for":"pause","attempts":0,"reason":null,"failure":null,"rolling_back":false,"can_give_up":true,"deadline":null,"wakes_at":null,"awaits":null,"worker":null,"step":null,"skipped":0,"found_by":{},"waiting":{"for":"pause","pauses":[{"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null,"new_runs_only":false}]},"priority":"normal","giving_up":false,"cancelled":false,"pauses":[{"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null,"new_runs_only":false}],"join":null,"text":"Run <id 3> of `payments` waits for the end of a pause, for <duration>: saga `payments` is paused by ann since <time>: the bank is away. It goes on when `resume` ends the pause of saga `payments`.","ends_by":"It goes on when `resume` ends the pause of saga `payments`.","read_at":"<time>","commands":[]}
    "#]]);
    shop.run(&["pauses", "--json"]).await.shows(expect![[r#"
        {"saga":"payments","topic":null,"reason":"the bank is away","source":"ann","since":"<time>","until":null,"new_runs_only":false}
    "#]]);
    let resume = ["resume", "--saga", "payments", "--reason", "it is open", "--source", "ben", "--yes"];
    shop.run(&resume).await.shows(expect![[r#"
        saga `payments` goes on; it was paused by ann since <time>
    "#]]);
    shop.run(&["resume", "--saga", "payments", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `payments` is not paused
    "#]]);
    let ended = shop.scoop.operate().pauses().ended().limit(1).await.unwrap().remove(0);
    assert_eq!((ended.ended_by.as_deref(), ended.end_reason.as_deref()), (Some("ben"), Some("it is open")));
    let payments = shop.scoop.operate().pauses().drained(PauseTarget::handler("payments"));
    eventually("the payment has begun", async || payments.progress().await.is_ok_and(|left| left == 1)).await;
    shop.run(&["pause", "--everything", "--reason", "maintenance", "--for-at-most", "2h", "--yes", "--json"])
        .await
        .shows(expect![[r#"
            {"saga":null,"topic":null,"reason":"maintenance","source":"scoop-cli","since":"<time>","until":"<time>","new_runs_only":false,"in_force":true,"is_known":true,"unacknowledged":[],"running":0,"runs_left":null}
        "#]]);
    let drain =
        ["pause", "--saga", "orders", "--reason", "a move", "--new-runs-only", "--drain", "30s", "--yes"];
    shop.run(&drain).await.shows(expect![[r#"
        saga `orders` is paused for new runs only by scoop-cli since <time>: a move; begun runs left: 0
    "#]]);
    shop.run(&["pause", "--reason", "what?", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: the following required arguments were not provided:
        2> <--saga <NAME>|--topic <NAME>|--everything>
        2> 
        2> Usage: scoop pause --reason <TEXT> --yes <--saga <NAME>|--topic <NAME>|--everything>
        2> 
        2> For more information, try '--help'.
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_paused_and_resumed() {
    let mut shop = Shop::open().await;
    let pause = ["pause", "--topic", "shop.payments", "--reason", "the bank is away", "--source", "ann"];
    shop.run(&[&pause[..], &["--yes"]].concat()).await.shows(expect![[r#"
        topic `shop.payments` is paused by ann since <time>: the bank is away; runs in a step: 0
    "#]]);
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes"]).await.shows(expect![[r#"
        <id 1>
    "#]]);
    assert_eq!(shop.run(&["runs", "--waiting-for", "pause", "--json"]).await.field("handler"), ["payments"]);
    shop.run(&["resume", "--topic", "shop.payments", "--yes", "--json"]).await.shows(expect![[r#"
        {"saga":null,"topic":"shop.payments","reason":"the bank is away","source":"ann","since":"<time>","until":null,"new_runs_only":false}
    "#]]);
    shop.run(&["resume", "--topic", "shop.payment", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler was ever registered for topic `shop.payment`; did you mean `shop.payments`?
    "#]]);
    shop.run(&["resume", "--topic", "shop.payments", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: topic `shop.payments` is not paused
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_that_a_worker_does_not_acknowledge_names_it_and_fails() {
    let mut shop = Shop::open().await;
    shop.register_worker("definitions").await;
    let pause = ["pause", "--saga", "payments", "--reason", "the bank is away", "--drain", "10ms", "--yes"];
    // The other worker may be too slow, too.
    let ran = shop.run(&pause).await;
    let (before, named) = ran.stdout.split_once("; not acknowledged by ").unwrap();
    assert!(ran.code == 1 && before.starts_with("saga `payments` is paused by scoop-cli since "), "{ran:?}");
    assert!(named.contains(&format!("scoop-rs:{OTHER_WORKER}")), "{ran:?}");
    shop.remove_worker().await;
    let pause = ["pause", "--saga", "payments", "--reason", "the bank is away", "--yes"];
    shop.run(&[&pause[..], &["--json"]].concat()).await.shows(expect![[r#"
        {"saga":"payments","topic":null,"reason":"the bank is away","source":"scoop-cli","since":"<time>","until":null,"new_runs_only":false,"in_force":true,"is_known":true,"unacknowledged":[],"running":0,"runs_left":null}
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_order_is_explained_and_reached_by_its_signal() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(7).await;
    let payment = order.tree().await.unwrap().runs()[1].id().to_string();
    let pause = ["pause", "--everything", "--reason", "maintenance", "--source", "ann", "--yes"];
    assert_eq!(shop.run(&pause).await.code, 0);
    shop.run(&["explain", &order.id().to_string()]).await.shows(expect![[r#"
        Run <id 1> of `orders` waits for 1 child, for <duration>. Below it, run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`. No step of it begins now: everything is paused by ann since <time>: maintenance. It goes on when all its children have ended. Also, `resume` has to end the pause of everything.
    "#]]);
    shop.run(&["explain", &payment]).await.shows(expect![[r#"
        Run <id 2> of `payments` awaits the signal `shop.paid` with the key `order 7`, for <duration>. No step of it begins now: everything is paused by ann since <time>: maintenance. It goes on when the signal `shop.paid` is sent with the key `order 7`. Also, `resume` has to end the pause of everything.
    "#]]);
    let doctor = shop.run(&["doctor", "--json"]).await;
    let found = doctor.field("check").iter().position(|check| check == "pauses").unwrap();
    let of_pauses = |field| doctor.field(field)[found].clone();
    assert_eq!(of_pauses("level"), "warning");
    assert!(of_pauses("text").starts_with("everything is paused by ann since 2"), "{doctor:?}");
    assert_eq!(of_pauses("advice"), "when the reason is gone: scoop resume --everything");
    shop.run(&["signal", "shop.paid", "order 7", r#"{"cents":990}"#, "--yes"]).await.shows(expect![[r#"
        the signal has reached 1 run
        a run that is paused goes on after the pause: everything is paused by ann since <time>: maintenance
    "#]]);
    shop.run(&["explain", &payment]).await.shows(expect![[r#"
        Run <id 2> of `payments` waits for the end of a pause, for <duration>: everything is paused by ann since <time>: maintenance. It goes on when `resume` ends the pause of everything.
    "#]]);
    assert_eq!(shop.run(&["resume", "--everything", "--yes"]).await.code, 0);
    assert_eq!(order.wait().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_without_a_program_is_retired() {
    let mut shop = Shop::open().await;
    shop.run(&["retire", "shop.orders", "order", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `order` is not subscribed to topic `shop.orders`; did you mean `orders`?
    "#]]);
    shop.run(&["retire", "shop.order", "orders", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `orders` is not subscribed to topic `shop.order`; did you mean `shop.orders`?
    "#]]);
    shop.scoop.shutdown().await.unwrap();
    shop.run(&["retire", "shop.payments", "payments", "--dry-run"]).await.shows(expect![[r#"
        would retire saga `payments` from topic `shop.payments`
    "#]]);
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 1>","message":"<id 2>","outcome":null,"text":null}
    "#]]);
    shop.run(&["retire", "shop.payments", "payments", "--yes"]).await.shows(expect![[r#"
        retired; 1 run has not begun, 0 were dropped
    "#]]);
    shop.run(&["retire", "shop.payments", "payments", "--yes", "--drop-pending", "--json"]).await.shows(
        expect![[r#"
        {"was_registered":false,"pending":0,"dropped":1}
    "#]],
    );
    shop.run(&["launch", "shop.payments", r#"{"order":2}"#, "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.payments` (add --without-handler to launch the message all the same); there are `shop.orders`
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_a_lock_file_are_registered_before_their_program_starts() {
    let mut shop = Shop::open().await;
    let file = std::env::temp_dir().join(format!("scoop-register-{}.lock", std::process::id()));
    let path = file.to_str().unwrap().to_owned();
    let lock = r#"{"sagas": {"payments": {"topics": ["shop.payments"]}, "letters": {"topics": ["shop.letters"], "was": ["mail"]}}}"#;
    std::fs::write(&file, lock).unwrap();
    shop.run(&["launch", "shop.letters", "7", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.letters` (add --without-handler to launch the message all the same); there are `shop.orders`, `shop.payments`
    "#]]);
    shop.run(&["register", &path, "--dry-run"]).await.shows(expect![[r#"
        would register 1 handler: `letters` on `shop.letters`
    "#]]);
    shop.run(&["register", &path, "--yes", "--json"]).await.shows(expect![[r#"
        {"topic":"shop.letters","saga":"letters"}
    "#]]);
    shop.run(&["register", &path, "--yes"]).await.shows(expect![[r#"
        nothing to do: 2 handlers registered already
    "#]]);
    shop.run(&["launch", "shop.letters", "7", "--yes", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 1>","message":"<id 2>","outcome":null,"text":null}
    "#]]);
    shop.run(&["retire", "shop.letters", "letters", "--yes"]).await.shows(expect![[r#"
        retired; 1 run has not begun, 0 were dropped
    "#]]);
    std::fs::write(&file, "[]").unwrap();
    let refused = shop.run(&["register", &path, "--yes"]).await;
    std::fs::remove_file(&file).unwrap();
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("this is no lock file of a program"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_with_a_living_worker_is_retired_by_force_only() {
    let mut shop = Shop::open().await;
    let retire = ["retire", "shop.payments", "payments"];
    for options in [&["--yes"][..], &["--dry-run"], &["--drop-pending", "--yes"]] {
        shop.run(&[&retire[..], options].concat()).await.shows(expect![[r#"
            exit 3
            2> error: 1 living worker still runs `payments`: its new messages would have no handler until a program starts again; stop the programs first, or add --force
        "#]]);
    }
    assert_eq!(shop.scoop.operate().handlers().list().await.unwrap().len(), 2);
    shop.run(&[&retire[..], &["--force", "--dry-run"]].concat()).await.shows(expect![[r#"
        would retire saga `payments` from topic `shop.payments`, although 1 living worker runs it
    "#]]);
    shop.run(&[&retire[..], &["--force", "--yes"]].concat()).await.shows(expect![[r#"
        retired; 0 runs have not begun, 0 were dropped
    "#]]);
    assert_eq!(shop.scoop.operate().handlers().list().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_hierarchies_are_pruned() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.order(2, Plan::FailToUndo).await;
    shop.unpaid_order(3).await;
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    let recent = shop.order(4, Plan::Commit).await;
    shop.run(&["prune", "--older-than", "1d", "--dry-run"]).await.shows(expect![[r#"
        would delete 1 hierarchy with 1 message and 5 events, and 0 signals
        kept 1 unfinished
        kept 1 awaiting an operator
    "#]]);
    shop.run(&["prune", "--older-than", "1d", "--dry-run", "--json"]).await.shows(expect![[r#"
        {"dry_run":true,"hierarchies":1,"messages":1,"events":5,"signals":0,"unique_keys":0,"kept":{"recent":0,"unfinished":1,"failed":1,"needed":0,"busy":0,"refused":0},"more":false}
    "#]]);
    shop.run(&["prune", "--older-than", "1d"]).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    shop.run(&["prune", "--older-than", "1d", "--yes"]).await.shows(expect![[r#"
        deleted 1 hierarchy with 1 message and 5 events, and 0 signals
        kept 1 unfinished
        kept 1 awaiting an operator
    "#]]);
    shop.run(&["prune", "--older-than", "1m", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: nothing younger than 1h can be pruned, and --older-than is <duration>; write --older-than 1h or more
    "#]]);
    shop.run(&["tree", "--topic", "shop.orders", "--key", "order 1"]).await.shows(expect![[r#"
        exit 3
        2> error: no message was launched on topic `shop.orders` with the key `order 1`; was the transaction that launched it committed, or was its hierarchy pruned?
    "#]]);
    assert_eq!(recent.wait().await.unwrap(), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_that_fails_counts_what_it_has_deleted() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    // Signals are deleted after the hierarchies.
    shop.db
        .execute(
            "CREATE FUNCTION public.fail_here() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'signals stay'; END $$;
             CREATE TRIGGER fail_here BEFORE DELETE ON scoop.signal EXECUTE FUNCTION public.fail_here()",
        )
        .await;
    let prune = ["prune", "--older-than", "1d", "--yes"];
    let ran = shop.run(&prune).await;
    assert!(ran.code == 1 && ran.stderr.contains("signals stay"), "{ran:?}");
    assert!(ran.stdout.starts_with("deleted 1 hierarchy with 1 message and "), "{ran:?}");
    // Nothing more is deleted, so nothing is counted.
    let ran = shop.run(&[&prune[..], &["--json"]].concat()).await;
    assert!(ran.code == 1 && ran.stdout.is_empty(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_has_a_delay_a_deadline_and_a_priority() {
    let mut shop = Shop::open().await;
    let order = r#"{"number":1,"plan":"Commit"}"#;
    let later =
        ["launch", "shop.orders", order, "--yes", "--delay", "2h", "--deadline", "3h", "--priority", "high"];
    assert_eq!(shop.run(&later).await.code, 0);
    let listed = shop.run(&["runs", "--json"]).await;
    assert_eq!(listed.field("state"), ["pending"]);
    let hours = "SELECT round(extract(epoch FROM $ - clock_timestamp()) / 3600)::bigint FROM scoop.run WHERE state = 'ready'";
    let run = listed.field("run").remove(0);
    assert_eq!(shop.db.number(&hours.replace('$', "ready_at")).await, 2);
    let from_now = async |field: &str| {
        let time = listed.field(field).remove(0);
        shop.db.number(&hours.replace('$', &format!("'{time}'::timestamptz"))).await
    };
    assert_eq!((from_now("wakes_at").await, from_now("deadline").await), (2, 3));
    assert_eq!(shop.run(&["explain", &run, "--json"]).await.field("priority"), ["high"]);
    let low = ["launch", "shop.orders", order, "--yes", "--priority", "urgent"];
    let ran = shop.run(&low).await;
    assert!(ran.code == 2 && ran.stderr.contains("[possible values: low, normal, high]"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_to_a_full_queue_is_refused_after_the_time_to_wait() {
    let mut shop = Shop::open().await;
    shop.scoop.shutdown().await.unwrap();
    shop.limit_payments().await;
    let payment = ["launch", "shop.payments", r#"{"order":1}"#, "--yes"];
    assert_eq!(shop.run(&payment).await.code, 0);
    shop.run(&[&payment[..], &["--wait-for-capacity", "100ms"]].concat()).await.shows(expect![[r#"
        exit 3
        2> error: the queue of saga `payments` is full after <duration>: at most 1 of its runs may wait for a worker; nothing was launched; launch again later, or let the launch wait by --wait-for-capacity; for more capacity, end a pause of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`
    "#]]);
    shop.run(&payment).await.shows(expect![[r#"
        exit 3
        2> error: the queue of saga `payments` is full: at most 1 of its runs may wait for a worker; nothing was launched; launch again later, or let the launch wait by --wait-for-capacity; for more capacity, end a pause of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_says_what_would_be_done_and_changes_nothing() {
    let mut shop = Shop::open().await;
    let unpaid = shop.unpaid_order(1).await;
    let (_, failed) = shop.unmended_order(2).await;
    let done = shop.order(3, Plan::Commit).await.id().to_string();
    let pause = ["pause", "--saga", "orders", "--reason", "maintenance", "--yes"];
    assert_eq!(shop.run(&pause).await.code, 0);
    let rows = "SELECT (SELECT count(*) FROM scoop.message_event) + (SELECT count(*) FROM scoop.signal)
                     + (SELECT count(*) FROM scoop.intervention) + (SELECT count(*) FROM scoop.pause)";
    let before = shop.db.number(rows).await;
    let reason = ["--reason", "none", "--dry-run"];
    shop.run(&["signal", "shop.paid", "order 1", r#"{"cents":1}"#, "--dry-run"]).await.shows(expect![[r#"
            would send the signal `shop.paid` with the key `order 1`
        "#]]);
    shop.run(&[&["rollback", &done], &reason[..]].concat()).await.shows(expect![[r#"
        would roll back <id 1>, the hierarchy that begins with run <id 2> of `orders` (committed)
    "#]]);
    shop.run(&[&["skip", &failed], &reason[..]].concat()).await.shows(expect![[r#"
        would skip the failed compensation, or the wait for failed runs below, of <id 3>, a run of `orders` in hierarchy <id 4> (rollback failed)
    "#]]);
    shop.run(&[&["resolve", &failed], &reason[..]].concat()).await.shows(expect![[r#"
        would count as rolled back by hand: <id 3>, a run of `orders` in hierarchy <id 4> (rollback failed)
    "#]]);
    shop.run(&["resume", "--saga", "orders", "--dry-run"]).await.shows(expect![[r#"
        would resume saga `orders`
    "#]]);
    shop.run(&["resume", "--handler", "orders", "--dry-run", "--json"]).await.shows(expect![[r#"
        {"would":"resume saga `orders`"}
    "#]]);
    assert_eq!(shop.db.number(rows).await, before);
    assert!(unpaid.tree().await.unwrap().cancellations().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_part_is_asked_with_a_caution() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    assert_eq!(shop.run(&["signal", "shop.paid", "order 1", r#"{"cents":1}"#, "--yes"]).await.code, 0);
    order.wait().await.unwrap();
    let part = order.tree().await.unwrap().runs()[1].id().to_string();
    shop.run(&["rollback", &part, "--reason", "none", "--dry-run"]).await.shows(expect![[r#"
        would roll back <id 1>, a run of `payments` in hierarchy <id 2> (committed), and leave the runs above it as they are, so that the hierarchy as a whole may be inconsistent
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_refuses_what_the_request_refuses() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Commit).await;
    let run = order.tree().await.unwrap().runs()[0].id().to_string();
    let (id, message) = (order.id().to_string(), order.message_id().to_string());
    let unpaid = shop.unpaid_order(2).await.id().to_string();
    let nested = shop.order(3, Plan::Nest).await.tree().await.unwrap();
    let [parent, child] = [0, 1].map(|at| nested.runs()[at].id().to_string());
    let reason = ["--reason", "none"];
    for end in ["--dry-run", "--yes"] {
        for command in ["cancel", "rollback"] {
            shop.run(&[&[command, &message, end], &reason[..]].concat()).await.shows(expect![[r#"
                exit 3
                2> error: <id 1> is the message of hierarchy <id 2> that run <id 3> of `orders` handles; use <id 3> for the run, or <id 2> for all of the hierarchy
            "#]]);
        }
        shop.run(&["retry", &message, end]).await.shows(expect![[r#"
            exit 3
            2> error: <id 1> is the message of hierarchy <id 2> that run <id 3> of `orders` handles; use <id 3>
        "#]]);
        shop.run(&[&["cancel", &id, end], &reason[..]].concat()).await.shows(expect![[r#"
            exit 3
            nothing to do: no run is left that could give up: the request has no effect beside its record
        "#]]);
        shop.run(&[&["rollback", &unpaid, end], &reason[..]].concat()).await.shows(expect![[r#"
            exit 3
            still running: a run of it is unfinished: repeat the request later, or cancel the run
        "#]]);
        shop.run(&["retry", &run, end]).await.shows(expect![[r#"
            exit 3
            not failed: the run has no failed rollback, or it was settled before
        "#]]);
        let refused = shop.run(&["retry", &parent, end]).await;
        let below =
            format!("repair the run {child} of `orders`, and it goes on; begin with `scoop retry {child}`");
        assert!(refused.code == 3 && refused.stdout.contains(&below), "{refused:?}");
        for command in ["skip", "resolve"] {
            shop.run(&[&[command, &run, end], &reason[..]].concat()).await.shows(expect![[r#"
                exit 3
                not failed: the run has no failed rollback, or it was settled before
            "#]]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn question_on_a_terminal_is_answered_with_yes_or_no() {
    let mut shop = Shop::open().await;
    let order = shop.unpaid_order(1).await;
    let id = order.id().to_string();
    let cancel = ["cancel", &id, "--reason", "the customer left"];
    shop.run_on_terminal(&cancel, "n\n").await.shows(expect![[r#"
        exit 3
        This will cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting).
        Go on? [y/N] nothing was done
    "#]]);
    for answer in ["\n", "yes, but\n"] {
        let ran = shop.run_on_terminal(&cancel, answer).await;
        assert!(ran.code == 3 && ran.stdout.ends_with("Go on? [y/N] nothing was done\r\n"), "{ran:?}");
    }
    assert!(order.tree().await.unwrap().cancellations().is_empty());
    shop.run_on_terminal(&cancel, "y\n").await.shows(expect![[r#"
        This will cancel <id 1>, the hierarchy that begins with run <id 2> of `orders` (waiting).
        Go on? [y/N] accepted: the unfinished runs give up
    "#]]);
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_run_is_retried() {
    let mut shop = Shop::open().await;
    let order = shop.stuck_order(1).await;
    let payment = order.tree().await.unwrap().runs()[1].id().to_string();
    shop.run(&["skip", &payment, "--reason", "none", "--yes"]).await.shows(expect![[r#"
        exit 3
        stuck: the run has not failed, but is stuck: it can only be retried
    "#]]);
    shop.run(&["retry", &payment, "--dry-run"]).await.shows(expect![[r#"
        would retry <id 1>, a run of `payments` in hierarchy <id 2> (stuck)
    "#]]);
    shop.run(&["retry", &payment, "--yes"]).await.shows(expect![[r#"
        accepted: the decision is recorded, and the run or the rollback goes on
    "#]]);
    order.comes_to(|tree| tree.runs()[1].state == RunState::AwaitingSignal).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_retry_all_failed_rollbacks_and_stuck_runs_that_pass() {
    let mut shop = Shop::open().await;
    let (_, first) = shop.unmended_order(1).await;
    shop.unmended_order(2).await;
    shop.order(3, Plan::Fail("sold out".into())).await;
    shop.stuck_order(4).await;
    let filters = ["retry", "--failed-with", "bank-closed"];
    shop.run(&[&filters[..], &["--dry-run"]].concat()).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 1> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
        <id 2> orders rollback failed <time> waits for an operator; bank-closed: the bank is closed
        would retry 2 runs: 2 of `orders` (rollback failed)
    "#]]);
    shop.run(&["retry", "--state", "stuck", "--dry-run", "--json"]).await.shows(expect![[r#"
        {"run":"<id 3>","hierarchy":"<id 4>","parent":"<id 5>","handler":"payments","topic":"shop.payments","message":"<id 6>","state":"stuck","since":"<time>","queued_at":null,"began_at":null,"queued_ms":null,"took_ms":null,"waits_for":"program","attempts":0,"reason":"the step `collect` is gone","failure":null,"rolling_back":false,"can_give_up":true,"deadline":null,"wakes_at":null,"awaits":null,"worker":null,"step":null,"skipped":0,"found_by":{}}
        {"would":"retry 1 run: 1 of `payments` (stuck)"}
        {"accepted":1,"covered":0,"perhaps_covered":0}
    "#]]);
    shop.run(&filters).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    assert_eq!(shop.db.number("SELECT count(*) FROM scoop.intervention").await, 0);
    shop.run(&[&filters[..], &["--limit", "1", "--yes"]].concat()).await.shows(expect![[r#"
        accepted: 1 run
        2> there may be more: the limit was reached
    "#]]);
    assert_eq!(shop.db.number("SELECT count(*) FROM scoop.intervention").await, 1);
    shop.run(&["retry", "--handler", "payments", "--yes", "--json"]).await.shows(expect![[r#"
        {"runs":1,"accepted":1,"covered":0,"refused":[],"left":0,"more":false}
    "#]]);
    shop.run(&["retry", "--handler", "payments", "--since", "1h", "--yes", "--json"]).await.shows(expect![[
        r#"
            {"runs":0,"accepted":0,"covered":0,"refused":[],"left":0,"more":false}
        "#
    ]]);
    shop.run(&["retry", "--handler", "payment", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler was ever registered for saga `payment`; did you mean `payments`?
    "#]]);
    shop.run(&["retry", &first, "--handler", "orders", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: an id and filters together are not possible: write `scoop retry <id 2>` with its other options, or leave the id out for all runs that pass the filters
    "#]]);
    shop.run(&["retry", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: an id is missing, or filters that choose runs, such as --saga: `scoop retry --help` lists them
    "#]]);
    shop.run(&["retry", "--state", "committed", "--yes"]).await.shows(expect![[r#"
        exit 2
        2> error: invalid value 'committed' for '--state <STATE>'
        2> [possible values: stuck, rollback-failed]
        2> 
        2> For more information, try '--help'.
    "#]]);
    for state in ["rollback failed", "rollback_failed"] {
        assert_eq!(shop.run(&["retry", "--state", state, "--dry-run", "--json"]).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_cancel_all_unfinished_runs_that_pass() {
    let mut shop = Shop::open().await;
    let orders = [shop.unpaid_order(1).await, shop.unpaid_order(2).await, shop.unpaid_order(3).await];
    shop.order(4, Plan::Commit).await;
    let reason = ["--reason", "the shop is closed", "--source", "support"];
    let cancel = |options: &[&'static str]| [&["cancel"][..], options, &reason].concat();
    shop.run(&cancel(&["--handler", "orders", "--dry-run"])).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 1> orders waiting <time> waits for children
        <id 2> orders waiting <time> waits for children
        <id 3> orders waiting <time> waits for children
        would cancel 3 runs: 3 of `orders` (waiting)
    "#]]);
    shop.run(&cancel(&["--handler", "orders", "--limit", "1", "--yes"])).await.shows(expect![[r#"
        accepted: 1 run
        2> there may be more: the limit was reached
    "#]]);
    let cancelled = async |order: &scoop::Handle| order.tree().await.unwrap().cancellations().len();
    assert_eq!(cancelled(&orders[2]).await, 1);
    assert!(matches!(orders[2].wait().await.unwrap(), Outcome::RolledBack(_)));
    // The payments are cancelled with their orders.
    let tried = shop.run(&cancel(&["--state", "waiting", "--state", "awaiting-signal", "--dry-run"])).await;
    let expected =
        "\nwould be accepted: 2 runs\nwould be settled with another run of the hierarchy: 2 runs\n";
    assert!(tried.code == 0 && tried.stdout.ends_with(expected), "{tried:?}");
    shop.run(&cancel(&["--state", "waiting", "--state", "awaiting-signal", "--yes"])).await.shows(expect![[
        r#"
            accepted: 2 runs
            settled with another run of the hierarchy: 2 runs
        "#
    ]]);
    for order in &orders {
        assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
    }
    let asked = &orders[0].tree().await.unwrap().cancellations()[0].clone();
    assert_eq!((&*asked.reason, &*asked.source), ("the shop is closed", "support"));
    shop.run(&cancel(&["--roots", "--yes"])).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    shop.run(&cancel(&["--failed-with", "sold-out", "--yes"])).await.shows(expect![[r#"
        exit 2
        2> error: `scoop cancel --failed-with` chooses nothing: a run with a failure rolls back already
    "#]]);
    shop.run(&cancel(&["--topic", "shop.orders", "--key", "order 1", "--roots", "--yes"]))
        .await
        .shows(expect![[r#"
            exit 2
            2> error: a key names a hierarchy: write `scoop cancel --topic TOPIC --key KEY` with its other options, or leave the key out for all runs that pass the filters
        "#]]);
    shop.run(&cancel(&["--key", "order 1", "--yes"])).await.shows(expect![[r#"
        exit 2
        2> error: the following required arguments were not provided:
        2> --topic <TOPIC>
        2> 
        2> Usage: scoop cancel --reason <TEXT> --topic <TOPIC> --key <KEY> --yes --source <NAME> [ID]
        2> 
        2> For more information, try '--help'.
    "#]]);
    let by_key = shop.unpaid_order(5).await;
    shop.run(&cancel(&["--topic", "shop.orders", "--key", "order 5", "--yes"])).await.shows(expect![[r#"
        accepted: the unfinished runs give up
    "#]]);
    assert!(matches!(by_key.wait().await.unwrap(), Outcome::RolledBack(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_failed_because_of_one_below_it_is_settled_with_that() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Nest).await;
    let phases: Vec<_> = order.tree().await.unwrap().runs().iter().map(|run| run.state.phase()).collect();
    assert_eq!(phases, [RunPhase::RollbackFailed; 2]);
    let parent = order.tree().await.unwrap().runs()[0].id().to_string();
    shop.run(&["retry", &parent, "--yes"]).await.shows(expect![[r#"
        exit 3
        failed below: its rollback failed because of runs below it: repair the run <id 1> of `orders`, and it goes on; begin with `scoop retry <id 1>`
    "#]]);
    shop.run(&["retry", "--handler", "orders", "--roots", "--yes"]).await.shows(expect![[r#"
        exit 3
        accepted: 0 runs
        failed below: 1 run: its rollback failed because of runs below it: repair those first, and it goes on
    "#]]);
    let tried = shop.run(&["retry", "--handler", "orders", "--roots", "--dry-run"]).await;
    let refused = "failed below: 1 run: its rollback failed because of runs below it";
    assert!(tried.code == 3 && tried.stdout.contains(refused), "{tried:?}");
    let tried = shop.run(&["retry", "--handler", "orders", "--dry-run"]).await;
    assert!(tried.code == 0 && tried.stdout.contains("would retry 2 runs"), "{tried:?}");
    let expected = "\nwould be accepted: 1 run\nwould be settled with another run of the hierarchy: 1 run\n";
    assert!(tried.stdout.ends_with(expected), "{tried:?}");
    shop.run(&["retry", "--handler", "orders", "--yes"]).await.shows(expect![[r#"
        accepted: 1 run
        settled with another run of the hierarchy: 1 run
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_above_one_that_failed_again_is_explained_with_the_commands_for_that() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Nest).await;
    let tree = order.tree().await.unwrap();
    let [parent, child] = [0, 1].map(|at| tree.runs()[at].id().to_string());
    assert_eq!(shop.run(&["retry", &child, "--yes"]).await.code, 0);
    let rests = |tree: &Tree| matches!(tree.runs()[0].state, RunState::RollbackFailed(_));
    order.comes_to(rests).await.unwrap();
    let commands = format!("Fix the cause, then run one of:\n  scoop retry {child}\n  scoop skip {child}");
    for id in [&parent, &order.id().to_string()] {
        let explained = shop.run(&["explain", id]).await;
        assert!(explained.stdout.contains(&format!("the run {child} of `orders`.")), "{explained:?}");
        assert!(explained.stdout.contains("the bank is closed"), "{explained:?}");
        assert!(explained.stdout.contains(&commands), "{explained:?}");
    }
    let explained = shop.run(&["explain", &parent, "--json"]).await.stdout;
    let below =
        format!(r#""failed_below":[{{"run":"{child}","handler":"orders","failure":{{"code":"bank-closed""#);
    assert!(explained.contains(&below), "{explained}");
    let waiting = shop.run(&["runs", "--waiting-for", "operator"]).await.stdout;
    assert!(waiting.contains(&child) && waiting.contains(&parent), "{waiting}");
    let cancel = ["cancel", &parent, "--reason", "none", "--dry-run"];
    let tried = shop.run(&cancel).await;
    assert!(tried.code == 3 && tried.stdout.starts_with("nothing to do: "), "{tried:?}");
    let cancellations = order.tree().await.unwrap().cancellations().len();
    assert_eq!(cancellations, 0, "a dry run is not recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_is_not_chosen_for_another_cancellation() {
    let mut shop = Shop::open().await;
    // The cancelled run stays as it is, since no program can continue it.
    shop.stuck_order(1).await;
    let cancel = ["cancel", "--handler", "payments", "--reason", "none", "--yes"];
    shop.run(&cancel).await.shows(expect![[r#"
        accepted: 1 run
    "#]]);
    shop.run(&cancel).await.shows(expect![[r#"
        2> no such runs
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_order_is_launched_again_once_and_so_are_all_that_pass_filters() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Fail("none left".into())).await;
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
    let id = order.id().to_string();
    let why = ["--reason", "the stock is counted", "--source", "ada"];
    let relaunch = [&["relaunch", &id][..], &why].concat();
    shop.run(&[&relaunch[..], &["--dry-run"]].concat()).await.shows(expect![[r#"
        would launch the message again of <id 1>, the hierarchy that begins with run <id 2> of `orders` (rolled back)
    "#]]);
    shop.run(&[&relaunch[..], &["--yes"]].concat()).await.shows(expect![[r#"
        accepted: the message is launched again, as hierarchy <id 3>
    "#]]);
    shop.run(&[&relaunch[..], &["--yes", "--json"]].concat()).await.shows(expect![[r#"
        exit 3
        {"answer":"relaunched before","text":"the message was launched again before, as hierarchy <id 3>"}
    "#]]);
    let tree = order.tree().await.unwrap();
    let new = shop.scoop.find(tree.relaunched_as()[0]).await.unwrap();
    assert!(matches!(new.wait().await.unwrap(), Outcome::RolledBack(_)));
    let links = shop.run(&["tree", &new.id().to_string(), "--json"]).await;
    assert_eq!(links.field("relaunch_of"), std::slice::from_ref(&id), "{links:?}");
    let payload = r#"{"number":9,"plan":"Commit"}"#;
    let changed = ["--again", "--yes", "--payload", payload];
    shop.run(&[&relaunch[..], &changed].concat()).await.shows(expect![[r#"
        accepted: the message is launched again, as hierarchy <id 7>
    "#]]);
    let other = order.tree().await.unwrap().relaunched_as()[1];
    let committed = shop.scoop.find(other).await.unwrap();
    assert_eq!(committed.wait().await.unwrap(), Outcome::Committed);
    let committed = committed.id().to_string();
    shop.run(&[&["relaunch", &committed][..], &why, &["--yes"]].concat()).await.shows(expect![[r#"
        exit 3
        committed: a handler of the message has committed: its effects would come a second time
    "#]]);
    let many = [&["relaunch", "--handler", "orders"][..], &why].concat();
    shop.run(&[&many[..], &["--dry-run"]].concat()).await.shows(expect![[r#"
        exit 3
        RUN SAGA STATE SINCE ABOUT
        <id 4> orders rolled back <time> took <duration>; sold-out: none left
        <id 2> orders rolled back <time> took <duration>; sold-out: none left
        would relaunch 2 runs: 2 of `orders` (rolled back)
        relaunched before: 1 run: the message was launched again before, as hierarchy <id 3>
    "#]]);
    shop.run(&[&many[..], &["--yes"]].concat()).await.shows(expect![[r#"
        exit 3
        accepted: 1 run
        relaunched before: 1 run: the message was launched again before, as hierarchy <id 3>
    "#]]);
    let all = ["--state", "committed", "--even-if-committed", "--yes"];
    shop.run(&[&many[..], &all].concat()).await.shows(expect![[r#"
        accepted: 1 run
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_are_counted_by_their_reasons() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::Nest).await;
    let retry = ["retry", "--handler", "orders", "--roots", "--yes"];
    shop.run(&retry).await.shows(expect![[r#"
        exit 3
        accepted: 0 runs
        failed below: 1 run: its rollback failed because of runs below it: repair those first, and it goes on
    "#]]);
    shop.run(&[&retry[..], &["--json"]].concat()).await.shows(expect![[r#"
        exit 3
        {"runs":1,"accepted":0,"covered":0,"refused":[{"answer":"failed below","text":"its rollback failed because of runs below it: repair those first, and it goes on","runs":1}],"left":0,"more":false}
    "#]]);
    // The exit code is the same if nothing reads the output.
    let mut unread = shop.command(&retry).spawn().unwrap();
    drop(unread.stdout.take());
    assert_eq!(shop.ended(unread).await.code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_end_between_two_when_the_user_interrupts_them() {
    let mut shop = Shop::open().await;
    let orders =
        [shop.unmended_order(1).await.0, shop.unmended_order(2).await.0, shop.unmended_order(3).await.0];
    shop.scoop.shutdown().await.unwrap();
    let mut blocker = shop.db.pool().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))")
        .bind(orders[1].id().uuid())
        .execute(&mut *blocker)
        .await
        .unwrap();
    let retry = shop.command(&["retry", "--handler", "orders", "--yes"]).spawn().unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("the second request waits for the lock", async || shop.db.number(waits).await > 0).await;
    interrupt(&retry).await;
    blocker.commit().await.unwrap();
    let ran = shop.ended(retry).await;
    ran.shows(expect![[r#"
        exit 1
        accepted: 2 runs
        not requested: 1 run
    "#]]);
    assert_eq!(shop.db.number("SELECT count(*) FROM scoop.intervention").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bar_is_drawn_on_a_terminal_only() {
    let mut shop = Shop::open().await;
    shop.unmended_order(1).await;
    shop.unmended_order(2).await;
    let retry = ["retry", "--state", "rollback-failed"];
    let ran = shop.run_on_terminal(&retry, "y\n").await;
    assert!(
        ran.code == 0 && ran.stdout.contains(" of 2 runs") && ran.stdout.contains("accepted: 2 runs"),
        "{ran:?}"
    );
    shop.unmended_order(3).await;
    let ran = shop.run(&["retry", "--state", "rollback-failed", "--yes"]).await;
    assert!(ran.code == 0 && !ran.stderr.contains(" of "), "{ran:?}");
    let prune = ["prune", "--older-than", "1d", "--limit", "7", "--yes"];
    assert_eq!(shop.run(&prune).await.stderr, "");
}

/// Has each such change of a table wait, until the returned transaction ends.
async fn changes_wait(shop: &Shop, change: &str, table: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
    const LOCK: &str = "SELECT pg_advisory_xact_lock(4711)";
    let mut blocker = shop.db.pool().begin().await.unwrap();
    sqlx::query(LOCK).execute(&mut *blocker).await.unwrap();
    let wait = format!(
        "CREATE FUNCTION public.wait_here() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$;
         CREATE TRIGGER wait_here BEFORE {change} ON scoop.{table} EXECUTE FUNCTION public.wait_here()"
    );
    shop.db.execute(&wait).await;
    blocker
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_prune_is_drawn_on_a_terminal() {
    let shop = Shop::open().await;
    shop.order(1, Plan::Commit).await;
    shop.order(2, Plan::Commit).await;
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    // Signals are deleted after the hierarchies.
    let blocker = changes_wait(&shop, "DELETE", "signal").await;
    let mut terminal = shop.terminal(200, &["prune", "--older-than", "1d", "--limit", "7", "--yes"]);
    assert!(terminal.shows(" 2 of 7 hierarchies").await, "{terminal:?}");
    blocker.commit().await.unwrap();
    let ran = terminal.ended(&mut vec![]).await;
    assert!(ran.code == 0 && ran.stdout.contains("0 of 7 hierarchies"), "{ran:?}");
    assert!(ran.stdout.contains("deleted 2 hierarchies with 2 messages"), "{ran:?}");
}

/// All rows of all tables.
async fn rows(shop: &Shop) -> Vec<String> {
    let tables =
        shop.db.texts("SELECT tablename::text FROM pg_tables WHERE schemaname = 'scoop' ORDER BY 1").await;
    let mut rows = vec![];
    for table in tables {
        let of_table = format!("SELECT '{table}: ' || r::text FROM scoop.{table} r ORDER BY r::text");
        rows.extend(shop.db.texts(&of_table).await);
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_changes_something_needs_an_answer() {
    let mut shop = Shop::with(|scoop| scoop.only::<Report>()).await;
    shop.order(1, Plan::Commit).await;
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    let done = shop.order(2, Plan::Commit).await.id().to_string();
    let mut failed = vec![];
    for number in 3..=7 {
        failed.push(shop.unmended_order(number).await.1);
    }
    let unpaid = shop.unpaid_order(8).await.id().to_string();
    shop.unpaid_order(9).await;
    shop.scoop.launch(Mail { to: "ann".into() }).await.unwrap();
    shop.db.scoop().only::<Mails>().start().await.unwrap().shutdown().await.unwrap();
    let paused = ["pause", "--saga", "payments", "--reason", "the bank is away", "--yes"];
    assert_eq!(shop.run(&paused).await.code, 0);
    // So nothing else changes.
    shop.scoop.shutdown().await.unwrap();
    let reason = ["--reason", "none"];
    let commands: [(&[&str], &[&str]); 16] = [
        (&["prune", "--older-than", "1d"], &[]),
        (&["launch", "shop.orders", r#"{"number":10,"plan":"Commit"}"#], &[]),
        (&["signal", "shop.paid", "order 9", r#"{"cents":1}"#], &[]),
        (&["trigger", "report"], &[]),
        (&["redeliver", "shop.mails"], &[]),
        (&["rollback", &done], &reason),
        (&["cancel", &unpaid], &reason),
        (&["cancel", "--handler", "payments", "--limit", "1"], &reason),
        (&["retry", &failed[0]], &[]),
        (&["skip", &failed[1]], &reason),
        (&["resolve", &failed[2]], &reason),
        (&["retry", "--handler", "orders", "--state", "rollback-failed"], &[]),
        (&["pause", "--topic", "shop.orders"], &reason),
        (&["pause", "--everything"], &reason),
        (&["resume", "--saga", "payments"], &[]),
        (&["retire", "shop.payments", "payments"], &[]),
    ];
    for (command, options) in commands {
        let with = |answer: &'static [&'static str]| [command, options, answer].concat();
        let before = rows(&shop).await;
        let ran = shop.run(&with(&[])).await;
        assert!(
            ran.code == 2 && ran.stderr.contains("add --yes, or --dry-run to see"),
            "{command:?}: {ran:?}"
        );
        let ran = shop.run(&with(&["--dry-run"])).await;
        assert_eq!(ran.code, 0, "{command:?}: {ran:?}");
        assert_eq!(rows(&shop).await, before, "{command:?}");
        let ran = shop.run(&with(&["--yes"])).await;
        assert_eq!(ran.code, 0, "{command:?}: {ran:?}");
        assert_ne!(rows(&shop).await, before, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_saga_is_run_by_hand() {
    let mut shop = Shop::with(|scoop| scoop.only::<Report>()).await;
    shop.run(&["trigger", "report", "--dry-run"]).await.shows(expect![[r#"
        would run saga `report` once, now
    "#]]);
    shop.run(&["trigger", "report"]).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    assert_eq!(shop.db.number("SELECT run_count FROM scoop.schedule").await, 0);
    shop.run(&["trigger", "report", "--yes", "--wait"]).await.shows(expect![[r#"
        <id 1>
        committed
    "#]]);
    shop.run(&["trigger", "report", "--yes", "--wait", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":null,"text":null}
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":"committed","text":"committed"}
    "#]]);
    assert_eq!(shop.db.number("SELECT run_count FROM scoop.schedule").await, 2);
    shop.run(&["trigger", "reports", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: saga `reports` has no schedule; did you mean `report`?
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_saga_that_fails_exits_with_1_if_its_end_is_waited_for() {
    let mut shop = Shop::with(|scoop| scoop.only::<Stocktaking>()).await;
    let trigger = ["trigger", "stocktaking", "--yes"];
    shop.run(&[&trigger[..], &["--wait"]].concat()).await.shows(expect![[r#"
        exit 1
        <id 1>
        rolled back: a chair is missing
    "#]]);
    shop.run(&[&trigger[..], &["--wait", "--json"]].concat()).await.shows(expect![[r#"
        exit 1
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":null,"text":null}
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":"rolled back","text":"rolled back: a chair is missing"}
    "#]]);
    shop.run(&trigger).await.shows(expect![[r#"
        <id 4>
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_handler_are_redelivered_to_a_later_one() {
    let mut shop = Shop::open().await;
    let mut mails = vec![];
    for to in ["ann", "ben", "eve"] {
        mails.push(shop.scoop.launch(Mail { to: to.into() }).await.unwrap());
    }
    shop.run(&["redeliver", "shop.mails", "--yes"]).await.shows(expect![[r#"
        exit 3
        2> error: no handler is subscribed to topic `shop.mails`; there are `shop.orders`, `shop.payments`
    "#]]);
    let later = shop.db.scoop().only::<Mails>().start().await.unwrap();
    shop.run(&["redeliver", "shop.mails", "--dry-run"]).await.shows(expect![[r#"
        would deliver at most 1000 messages on topic `shop.mails` to mails: those that had no handler, of the last day
    "#]]);
    shop.run(&["redeliver", "shop.mails", "--since", "2h", "--limit", "1", "--dry-run", "--json"])
        .await
        .shows(expect![[r#"
            {"would":"deliver at most 1 message on topic `shop.mails` to mails: those that had no handler, of the time since <time>"}
        "#]]);
    shop.run(&["redeliver", "shop.mails", "--limit", "2", "--yes"]).await.shows(expect![[r#"
        redelivered 2 messages
        <id 1>
        <id 2>
        2> there may be more: the limit was reached; repeat the command
    "#]]);
    shop.run(&["redeliver", "shop.mails", "--since", "1h", "--yes", "--json"]).await.shows(expect![[r#"
        {"hierarchies":["<id 3>"],"more":false}
    "#]]);
    shop.run(&["redeliver", "shop.mails", "--yes"]).await.shows(expect![[r#"
        redelivered 0 messages
    "#]]);
    for mail in mails {
        assert_eq!(mail.ends().await.unwrap(), Outcome::Committed);
    }
    later.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_ends_at_its_limit() {
    let mut shop = Shop::open().await;
    for number in 1..=3 {
        shop.order(number, Plan::Commit).await;
    }
    shop.db.grow_older(Duration::from_secs(2 * 86_400)).await;
    let prune = ["prune", "--older-than", "1d", "--limit", "2"];
    shop.run(&[&prune[..], &["--dry-run"]].concat()).await.shows(expect![[r#"
        would delete 2 hierarchies with 2 messages and 10 events, and 0 signals
        there may be more: the limit was reached
    "#]]);
    shop.run(&[&prune[..], &["--yes"]].concat()).await.shows(expect![[r#"
        deleted 2 hierarchies with 2 messages and 10 events, and 0 signals
        there may be more: the limit was reached
    "#]]);
    shop.run(&[&prune[..], &["--yes", "--json"]].concat()).await.shows(expect![[r#"
        {"dry_run":false,"hierarchies":1,"messages":1,"events":5,"signals":0,"unique_keys":0,"kept":{"recent":0,"unfinished":0,"failed":0,"needed":0,"busy":0,"refused":0},"more":false}
    "#]]);
}
