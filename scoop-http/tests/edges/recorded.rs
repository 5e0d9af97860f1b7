//! Recorded requests, of which each file says where it is from; and what verifies them.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use scoop_http::{BadSecret, Verifier};

pub(crate) const GITHUB: &str = include_str!("../recorded/github.http");
pub(crate) const STANDARD: &str = include_str!("../recorded/standard.http");
pub(crate) const STANDARD_ROTATED: &str = include_str!("../recorded/standard_rotated.http");
pub(crate) const STRIPE: &str = include_str!("../recorded/stripe.http");

/// A request of a file: comments, then as on the wire. The last line break is that of the file.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) secret: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Recorded {
    pub(crate) fn read(text: &'static str) -> Self {
        let (head, body) = text.split_once("\n\n").unwrap();
        let (comments, head): (Vec<_>, Vec<_>) = head.lines().partition(|line| line.starts_with('#'));
        let secret = comments.iter().find_map(|line| line.strip_prefix("# secret: ")).unwrap_or_default();
        let header = |line: &&str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        let headers = head[1..].iter().map(header).collect();
        Self { secret: secret.into(), headers, body: body.strip_suffix('\n').unwrap().into() }
    }

    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.insert(name, value.parse().unwrap());
        changed
    }

    pub(crate) fn without(&self, name: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.remove(name).unwrap();
        changed
    }

    pub(crate) fn with_body(&self, body: &'static str) -> Self {
        Self { body: body.into(), ..self.clone() }
    }

    pub(crate) fn request(&self) -> Request<Body> {
        let mut request = Request::post("/webhook").body(self.body.clone().into()).unwrap();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// The status and the text of the refusal.
    fn refused_by(&self, verifier: &Verifier) -> (StatusCode, String) {
        let refused = verifier.verify(&self.headers, self.body.clone()).unwrap_err();
        (refused.status(), refused.to_string())
    }
}

type New = fn(String) -> Result<Verifier, BadSecret>;

/// The recorded requests, with their verifiers, which do not look at the time, and the ids.
pub(crate) fn all() -> [(Recorded, Verifier, &'static str); 4] {
    let recorded: [(_, New, _); 4] = [
        (GITHUB, Verifier::github, "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        (STANDARD, Verifier::standard, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (STANDARD_ROTATED, Verifier::standard, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (STRIPE, Verifier::stripe, "evt_1NG8Du2eZvKYlo2CUI79vXWy"),
    ];
    recorded.map(|(text, new, id)| {
        let request = Recorded::read(text);
        let verifier = new(request.secret.clone()).unwrap().tolerance(Duration::MAX);
        (request, verifier, id)
    })
}

#[test]
fn recorded_request_is_verified_with_its_id_and_kind() {
    let kinds = all().map(|(request, verifier, id)| {
        let delivery = verifier.source("the sender").verify(&request.headers, request.body.clone()).unwrap();
        assert_eq!((&*delivery.id, delivery.unique_key), (id, format!("the sender {id}")));
        assert_eq!((delivery.headers, delivery.body), (request.headers, request.body));
        delivery.kind
    });
    assert_eq!(kinds, ["issues", "", "", "invoice.paid"]);
}

#[test]
fn changed_request_is_refused_with_the_header() {
    let [(github, by_github, _), (standard, by_standard, _), _, (stripe, by_stripe, _)] = all();
    let of_stripe = |value| (stripe.with("stripe-signature", value), &by_stripe, "stripe-signature");
    let signature = github.headers["x-hub-signature-256"].to_str().unwrap().to_owned();
    for (request, verifier, header) in [
        (standard.with_body("{\"test\": 2}"), &by_standard, "webhook-signature"),
        (standard.with("webhook-id", "msg_2"), &by_standard, "webhook-signature"),
        (standard.with("webhook-timestamp", "1614265331"), &by_standard, "webhook-signature"),
        (standard.with("webhook-signature", "v1,"), &by_standard, "webhook-signature"),
        (standard.with("webhook-signature", "v1,g0hM9SsE"), &by_standard, "webhook-signature"),
        (standard.with("webhook-signature", "v2,g0hM9SsE+OTPJTGt"), &by_standard, "webhook-signature"),
        (standard.without("webhook-id"), &by_standard, "webhook-id"),
        (standard.with("webhook-id", ""), &by_standard, "webhook-id"),
        (standard.without("webhook-timestamp"), &by_standard, "webhook-timestamp"),
        (standard.without("webhook-signature"), &by_standard, "webhook-signature"),
        (stripe.with_body("{\"id\":\"evt_2\"}"), &by_stripe, "stripe-signature"),
        (stripe.without("stripe-signature"), &by_stripe, "stripe-signature"),
        of_stripe("v1=88c9a2a07b5e"),
        of_stripe("t=1686089971,v1=é8c9"),
        of_stripe("t=1686089971,v1=88c"),
        of_stripe("t=1686089971"),
        (github.with_body("Hello, World?"), &by_github, "x-hub-signature-256"),
        (github.without("x-hub-signature-256"), &by_github, "x-hub-signature-256"),
        (github.with("x-hub-signature-256", &signature[7..]), &by_github, "x-hub-signature-256"),
        (github.without("x-github-delivery"), &by_github, "x-github-delivery"),
        (github.without("x-github-event"), &by_github, "x-github-event"),
    ] {
        let (status, text) = request.refused_by(verifier);
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{header}: {text}");
        assert!(text.starts_with(&format!("header `{header}`: ")), "{text}");
    }
}

#[test]
fn request_of_another_time_is_refused() {
    for (text, verifier, header) in [
        (STANDARD, Verifier::standard as New, "webhook-timestamp"),
        (STRIPE, Verifier::stripe, "stripe-signature"),
    ] {
        let request = Recorded::read(text);
        let (status, text) = request.refused_by(&verifier(request.secret.clone()).unwrap());
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            text,
            format!("header `{header}`: the time is more than 300 s from the clock of this server")
        );
    }
}

#[test]
fn id_without_a_clear_end_is_refused() {
    let [(github, by_github, _), (standard, by_standard, _), ..] = all();
    let (status, text) = github.with("x-github-delivery", "of another").refused_by(&by_github);
    assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, "the id of the delivery has a space"));
    // Signed with the same secret.
    let signature = "v1,skMq59ftCduh1NQn8iiAQBY2if1JZ3OxItodswrYiTI=";
    let request = standard.with("webhook-id", "msg.1").with("webhook-signature", signature).with_body("{}");
    let (status, text) = request.refused_by(&by_standard);
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.starts_with("header `webhook-id`: "), "{text}");
}

#[test]
fn one_of_several_secrets_is_enough() {
    let request = Recorded::read(GITHUB);
    let with = |secrets: [&str; 2]| Verifier::github(secrets[0]).unwrap().or_secret(secrets[1]).unwrap();
    for secrets in [[&*request.secret, "new"], ["new", &*request.secret]] {
        assert!(with(secrets).verify(&request.headers, request.body.clone()).is_ok());
    }
    let (status, text) = request.refused_by(&with(["new", "newer"]));
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        text,
        "header `x-hub-signature-256`: no signature is that of this request with a known secret"
    );
}

#[test]
fn secret_is_checked_and_never_shown() {
    for nothing in ["", "\n", "whsec_"] {
        assert_eq!(Verifier::github(nothing).unwrap_err(), BadSecret::Empty);
        assert_eq!(Verifier::stripe(nothing).unwrap_err(), BadSecret::Empty);
    }
    assert_eq!(Verifier::standard("whsec_").unwrap_err(), BadSecret::Empty);
    assert_eq!(Verifier::standard("whsec_no base64").unwrap_err(), BadSecret::NotBase64);
    let shown = format!("{:?}", Verifier::github("It's a Secret").unwrap());
    assert!(shown.contains("GitHub") && !shown.contains("Secret"), "{shown}");
}

#[test]
fn event_of_stripe_without_an_id_is_refused_with_the_field() {
    // As `stripe.http` is signed.
    const BODY: &str = "{\"type\":\"invoice.paid\"}";
    let signature = "t=1686089971,v1=89a80a6a2df60d8b51c94a6933e73458ff35048852e374f3c895a69aedb82ff6";
    let request = Recorded::read(STRIPE).with("stripe-signature", signature).with_body(BODY);
    let verifier = Verifier::stripe(&request.secret).unwrap().tolerance(Duration::MAX);
    let (status, text) = request.refused_by(&verifier);
    assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, "body, field `id`: an event has one"));
}
