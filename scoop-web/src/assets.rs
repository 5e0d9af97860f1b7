//! Style, scripts and icon, embedded in the program. Their names have a digest, so that browsers keep them forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use crate::secret::hex;

struct Asset {
    kind: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 4] = [
    Asset { kind: "css", content_type: "text/css; charset=utf-8", text: include_str!("../assets/style.css") },
    Asset {
        kind: "js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../assets/live.js"),
    },
    Asset { kind: "svg", content_type: "image/svg+xml", text: include_str!("../assets/icon.svg") },
    Asset {
        kind: "js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../assets/play.js"),
    },
];

static NAMES: LazyLock<[String; 4]> = LazyLock::new(|| {
    ASSETS.each_ref().map(|asset| format!("{}.{}", &hex(&Sha256::digest(asset.text))[..12], asset.kind))
});

/// The name of the style.
pub(crate) fn style() -> String {
    NAMES[0].clone()
}

/// The name of the script.
pub(crate) fn script() -> String {
    NAMES[1].clone()
}

/// The name of the icon.
pub(crate) fn icon() -> String {
    NAMES[2].clone()
}

/// The name of the script that plays a hierarchy.
pub(crate) fn player() -> String {
    NAMES[3].clone()
}

/// Serves an asset.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let asset = NAMES.iter().zip(&ASSETS).find(|(known, _)| **known == name);
    let Some((_, asset)) = asset else { return StatusCode::NOT_FOUND.into_response() };
    let headers =
        [(CONTENT_TYPE, asset.content_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.text).into_response()
}
