//! Two minutes with the example `checkout`: its orders are followed, one that was rolled back is read, and the refund that its
//! payment provider refuses is found, explained and retried.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use scoop_test_support::eventually;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::http::{get, log_in};
use crate::support::{Ran, interrupt, program, ran};

/// The time limit for what the example is about to do, even on a busy machine.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// The number of orders that the example places at first.
const GIVEN: usize = 25;

/// The example with its web page, on a private PostgreSQL. It is killed when this is dropped.
struct Example {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn serve() -> Self {
        // `cargo test` builds the example beside the tests.
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let example: PathBuf = profile.join("checkout");
        assert!(example.exists(), "first run `cargo build -p checkout`");
        let mut command = Command::new(example);
        command.args(["--serve", "--every", "100ms", "--quiet"]).env_remove("DATABASE_URL");
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The rest of the next line that begins so.
    async fn line_after(&mut self, beginning: &str) -> String {
        let found = timeout(RETRY_FOR, async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("the example goes on");
                if let Some(rest) = line.trim_start().strip_prefix(beginning) {
                    return rest.to_owned();
                }
            }
        });
        found.await.unwrap_or_else(|_| panic!("no line begins with {beginning:?}"))
    }

    /// Ends the example as Ctrl+C does, and returns the rest of its output.
    async fn interrupt(mut self) -> String {
        interrupt(&self.child).await;
        let mut rest = String::new();
        while let Some(line) = timeout(RETRY_FOR, self.lines.next_line()).await.expect("it ends").unwrap() {
            rest += &line;
            rest += "\n";
        }
        let status = timeout(RETRY_FOR, self.child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}:\n{rest}");
        rest
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_orders_of_the_checkout_example_are_found_explained_and_repaired() {
    let mut example = Example::serve();
    let page = example.line_after("the web page: ").await;
    let url = example.line_after("export DATABASE_URL='").await;
    let url = url.trim_end_matches('\'');
    let run = example.line_after("scoop explain ").await;
    assert_eq!(example.line_after("scoop retry ").await, run);

    // The page, with the cookie for its token.
    let (address, cookie) = log_in(&page).await;
    let inbox = get(&address, "/inbox", &cookie).await;
    assert!(inbox.contains("the payment provider is down and refused to refund P"), "{inbox}");
    assert!(inbox.contains(&format!("/actions/retry/{run}")), "{inbox}");

    // The command line, with the commands of the README.
    let scoop = async |args: &[&str]| -> Ran {
        let mut command = program(args);
        command.env("DATABASE_URL", url);
        let ran = ran(command, &mut vec![]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let seen = scoop(&["events", "--follow", "--handler", "checkout", "--count", "3", "--json"]).await;
    assert_eq!(seen.field("handler"), ["checkout"; 3]);
    let mut rolled_back = vec![];
    eventually("an order is rolled back", async || {
        let failed = scoop(&["runs", "--roots", "--state", "rolled-back", "--json"]).await;
        rolled_back = [failed.field("hierarchy"), failed.field("run")].concat();
        !rolled_back.is_empty()
    })
    .await;
    let [hierarchy, run_of_order] = [&rolled_back[0], &rolled_back[rolled_back.len() / 2]];
    let tree = scoop(&["tree", hierarchy]).await.stdout;
    assert!(tree.contains(" began to roll back in ") && tree.contains(", at examples/checkout/"), "{tree}");
    assert!(tree.contains(&format!("run {run_of_order}, took ")), "{tree}");
    let contents = scoop(&["contents", run_of_order]).await.stdout;
    assert!(contents.starts_with("message:\n") && contents.contains("\"lines\": ["), "{contents}");

    let awaiting = ["runs", "--waiting-for", "operator", "--handler", "payments", "--json"];
    let found = scoop(&awaiting).await;
    assert_eq!(found.field("run"), [&*run]);
    let order = found.field("hierarchy").remove(0);
    let explained = scoop(&["explain", &run]).await.stdout;
    assert!(explained.contains("waits for an operator"), "{explained}");
    assert!(explained.contains("the payment provider is down and refused to refund P"), "{explained}");

    let retried = scoop(&["retry", &run, "--yes"]).await.stdout;
    assert!(retried.starts_with("accepted: "), "{retried}");
    eventually("it is settled", async || scoop(&awaiting).await.stdout.is_empty()).await;
    eventually("the order is rolled back", async || {
        scoop(&["explain", &order]).await.stdout.contains("of `checkout` was rolled back at ")
    })
    .await;

    // Meanwhile orders flow.
    let orders = ["runs", "--roots", "--handler", "checkout", "--limit", "1000", "--json"];
    eventually("further orders are placed", async || scoop(&orders).await.field("run").len() > GIVEN + 2)
        .await;
    let end = example.interrupt().await;
    assert!(end.contains("the books balance") && !end.contains("awaiting an operator"), "{end}");
}
