//! The web page, as the program serves it.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::http::{get, log_in};
use crate::support::{Plan, Shop, interrupt};

/// What a form that changes something has.
const POST: &str = "method=\"post\"";

/// The program that serves the page, with what it has written.
struct Server {
    program: Child,
    line: String,
}

impl Server {
    async fn start(shop: &Shop, options: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], options].concat();
        let mut program = shop.command(&args).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        Self { program, line }
    }

    async fn stop(mut self) {
        self.program.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_served_at_the_written_url() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, &[]).await;
    let (address, cookie) = log_in(&server.line).await;
    let page = get(&address, "/", &cookie).await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("<title>"), "{page}");
    let refused = get(&address, "/", "none=").await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let topology = get(&address, "/topology", &cookie).await;
    assert!(topology.contains("shop.orders") && topology.contains("Pause everything"), "{topology}");
    let pause = get(&address, "/pause?everything=1", &cookie).await;
    assert!(pause.starts_with("HTTP/1.1 200 ") && pause.contains(POST), "{pause}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_page_has_no_actions() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, &["--read-only", "--json", "--token", "0123456789abcdef"]).await;
    let written: serde_json::Value = serde_json::from_str(&server.line).unwrap();
    let url = written["url"].as_str().unwrap();
    assert!(url.ends_with("/?token=0123456789abcdef"), "{url}");
    let (address, cookie) = log_in(url).await;
    let topology = get(&address, "/topology", &cookie).await;
    assert!(topology.starts_with("HTTP/1.1 200 ") && topology.contains("shop.orders"), "{topology}");
    assert!(!topology.contains(POST) && !topology.contains("Pause everything"), "{topology}");
    let pause = get(&address, "/pause?everything=1", &cookie).await;
    assert!(pause.starts_with("HTTP/1.1 403 ") && !pause.contains(POST), "{pause}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_of_a_command_is_what_the_api_answers() {
    let mut shop = Shop::open().await;
    let (failed, run) = shop.unmended_order(1).await;
    shop.order(2, Plan::Commit).await;
    shop.run(&["pause", "--saga", "payments", "--reason", "a test", "--yes"]).await;
    let server = Server::start(&shop, &[]).await;
    let (address, cookie) = log_in(&server.line).await;
    let asked = async |path: &str| -> Value {
        let response = get(&address, &format!("/api/{path}"), &cookie).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    for (command, path, list) in [
        (&["runs", "--saga", "orders"][..], "runs?handler=orders".to_owned(), Some("items")),
        (&["tree", &failed.id().to_string()], format!("hierarchies/{}?limit=40", failed.id()), Some("runs")),
        (&["contents", &run], format!("runs/{run}/contents"), None),
        (&["pauses"], "pauses".to_owned(), Some("items")),
        (&["events"], "events".to_owned(), Some("items")),
    ] {
        let written = shop.run(&[command, &["--json"]].concat()).await.lines();
        let answer = asked(&path).await;
        let answers =
            list.map_or_else(|| vec![answer.clone()], |list| answer[list].as_array().unwrap().clone());
        assert!(!answers.is_empty(), "{command:?}");
        // A last line of the command may name the place from which another call goes on.
        let written: Vec<_> = written.into_iter().filter(|line| line.get("next").is_none()).collect();
        assert_eq!(written, answers, "{command:?}");
    }
    // The command adds the commands that end the wait. The text says for how long it lasts, which each of both reads at its time.
    let mut written = shop.run(&["explain", &run, "--json"]).await.lines().remove(0);
    let mut answer = asked(&format!("runs/{run}")).await;
    assert_eq!(written["commands"].as_array().unwrap().len(), 3, "{written}");
    for explained in [&mut written, &mut answer] {
        explained
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !["commands", "text", "read_at"].contains(&&**name));
    }
    assert_eq!(written, answer);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_token_and_taken_port_are_refused() {
    let mut shop = Shop::open().await;
    let ran = shop.run(&["serve", "--token", "short"]).await;
    assert!(ran.code == 2 && ran.stderr.contains("16 bytes or more"), "{ran:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = shop.run(&["serve", "--listen", &taken.local_addr().unwrap().to_string()]).await;
    assert!(ran.code == 1 && ran.stderr.contains("cannot be bound"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_page_ends_as_done() {
    let mut shop = Shop::open().await;
    let Server { program, line } = Server::start(&shop, &[]).await;
    interrupt(&program).await;
    let ran = shop.ended(program).await;
    assert!(line.starts_with("http://127.0.0.1:") && ran.code == 0 && ran.stderr.is_empty(), "{ran:?}");
}
