//! Chromium without a window, driven by WebDriver.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How long a test waits for something that a page is about to show.
const PATIENCE: Duration = Duration::from_secs(20);

/// The environment variable with the folder to which the images of the guide are written, from the root of the repository.
pub(crate) const IMAGES: &str = "SCOOP_IMAGES";

/// What a page and the image of it have in common: the style, by the digest in its name, and the texts that are the same in each
/// run of the test. Counts and times are left out.
const OUTLINE: &str = r#"
    const style = document.querySelector("link[rel=stylesheet]").href.split("/").pop();
    const fixed = "header nav a, h1, h2, main th[scope=col], main label, main legend, main summary, main button, .actions a";
    const text = (element) => {
        const copy = element.cloneNode(true);
        for (const it of copy.querySelectorAll(".minor")) it.remove();
        return `${element.localName} ${copy.textContent.trim().replace(/\s+/g, " ")}`;
    };
    return [style, ...[...document.querySelectorAll(fixed)].map(text)];
"#;

/// Keys, as WebDriver names them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";

/// The size of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Desktop,
    /// That of a telephone: 380 pixels wide.
    Narrow,
}

/// The colors that the system prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colors {
    Light,
    Dark,
}

/// A browser, which ends with this value.
pub(crate) struct Browser {
    pub(crate) client: Client,
    driver: Child,
    _output: Lines<BufReader<ChildStdout>>,
    profile: PathBuf,
}

impl Browser {
    pub(crate) async fn open(window: Window, colors: Colors) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver starts: install chromium and chromium-driver");
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = output.next_line().await.unwrap().expect("chromedriver tells its port");
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        let profile = std::env::temp_dir().join(format!("scoop-web-{}-{port}", std::process::id()));
        let mut arguments: Vec<_> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,860",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        if colors == Colors::Dark {
            arguments.push("--force-dark-mode".into());
        }
        let mut chrome = json!({ "args": arguments });
        if window == Window::Narrow {
            chrome["mobileEmulation"] =
                json!({ "deviceMetrics": { "width": 380, "height": 800, "pixelRatio": 1 } });
        }
        let mut capabilities = Capabilities::new();
        capabilities.insert("goog:chromeOptions".into(), chrome);
        capabilities.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("chromium starts");
        Self { client, driver, _output: output, profile }
    }

    pub(crate) async fn goto(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Waits until an element fits, and has this text in it.
    #[track_caller]
    pub(crate) fn shows(&self, css: &str, text: &str) -> impl Future<Output = ()> {
        let script = "return [...document.querySelectorAll(arguments[0])].some(it => it.textContent.includes(arguments[1]))";
        let wanted = vec![json!(css), json!(text)];
        async move {
            let shown = tokio::time::timeout(PATIENCE, async {
                while self.client.execute(script, wanted.clone()).await.unwrap() != json!(true) {
                    tokio::task::yield_now().await;
                }
            });
            if shown.await.is_err() {
                panic!("{text:?} is not in {css:?} of\n{}", self.client.source().await.unwrap());
            }
        }
    }

    /// Waits until a script returns true.
    pub(crate) async fn until(&self, script: &str) {
        let came = tokio::time::timeout(PATIENCE, async {
            while self.value(script).await != json!(true) {
                tokio::task::yield_now().await;
            }
        });
        if came.await.is_err() {
            panic!("{script:?} is not true of\n{}", self.client.source().await.unwrap());
        }
    }

    /// Waits until the page follows the events, and stops its timers: from then on only the stream of events updates it.
    pub(crate) async fn follows_events_alone(&self) {
        self.until("return document.getElementById('live-state').textContent === 'live'").await;
        let stop = "for (let timer = setTimeout(() => {}); timer > 0; timer -= 1) { clearInterval(timer); } \
                    window.before = document.querySelector('#live > *'); return null";
        self.value(stop).await;
        // The stream begins with a message of its own, for what happened before.
        self.until("return !window.before.isConnected").await;
        self.value(stop).await;
    }

    /// Presses keys, one after the other, or enters a text where the focus is.
    ///
    /// The keys go to the window, not to an element, which a live update may replace meanwhile.
    pub(crate) async fn press(&self, keys: &str) {
        let mut actions = KeyActions::new("keyboard".into());
        for value in keys.chars() {
            actions = actions.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        }
        self.client.perform_actions(actions).await.unwrap();
    }

    /// Presses the tabulator until the focused element fits.
    pub(crate) async fn tab_to(&self, css: &str) {
        let script = "return document.activeElement.matches(arguments[0])";
        for _ in 0..100 {
            self.press(TAB).await;
            if self.client.execute(script, vec![json!(css)]).await.unwrap() == json!(true) {
                return;
            }
        }
        panic!("{css:?} does not get the focus in\n{}", self.client.source().await.unwrap());
    }

    /// Clicks a link or a button, and waits for the page that follows.
    pub(crate) async fn click(&self, css: &str) {
        loop {
            let element = self.client.find(Locator::Css(css)).await;
            match element.unwrap_or_else(|error| panic!("{css}: {error}")).click().await {
                // A live update has replaced it meanwhile.
                Err(error) if error.is_stale_element_reference() => {}
                clicked => return clicked.unwrap(),
            }
        }
    }

    /// Enters a text.
    pub(crate) async fn enter(&self, css: &str, text: &str) {
        let element = self.client.find(Locator::Css(css)).await.unwrap();
        element.clear().await.unwrap();
        element.send_keys(text).await.unwrap();
    }

    /// The value of a script.
    pub(crate) async fn value(&self, script: &str) -> serde_json::Value {
        self.client.execute(script, vec![]).await.unwrap()
    }

    /// Checks that the image of the guide is one of this page, by the outline beside it. If the folder for images is given,
    /// writes both instead.
    pub(crate) async fn image(&self, name: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let outline: Vec<String> = serde_json::from_value(self.value(OUTLINE).await).unwrap();
        let outline = outline.join("\n") + "\n";
        if let Some(folder) = std::env::var_os(IMAGES) {
            let image = root.join(folder).join(name);
            std::fs::write(image.with_extension("png"), self.client.screenshot().await.unwrap()).unwrap();
            std::fs::write(image.with_extension("txt"), outline).unwrap();
            return;
        }
        let stored =
            std::fs::read_to_string(root.join(format!("docs/images/{name}.txt"))).unwrap_or_default();
        assert_eq!(
            outline, stored,
            "docs/images/{name}.png is of another page: write it by `{IMAGES}=docs/images cargo test -p scoop-web --test pages`"
        );
    }

    /// Ends the browser.
    pub(crate) async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver leads a group, to which the processes of the browser belong.
        if let Some(id) = self.driver.id() {
            let group = format!("-{id}");
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
