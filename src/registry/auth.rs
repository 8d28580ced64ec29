//! Answering a registry's challenge: Basic, or Bearer through the token server it names.
//!
//! The token protocol is the distribution specification's: `GET realm?service=..&scope=..` with basic
//! authentication, or for an identity token a POST with `grant_type=refresh_token`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_auth::ChallengeParser;
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Url};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::http::{self, Sent, status_error};
use super::reference::is_loopback;
use super::{Credential, ImageName, RegistryError, Secret, ServerMessage};

/// A token whose answer names no lifetime has this one, by the specification.
const TOKEN_LIFE: u64 = 60;
/// Tokens are some KiB at most.
const MAX_TOKEN_ANSWER: usize = 256 << 10;

/// What the registry asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: Url, service: Option<String> },
}

/// The header to send, and how long it is good for.
#[derive(Debug, Clone)]
struct Held {
    header: HeaderValue,
    /// When to fetch a new token; nothing for Basic.
    renew_at: Option<Instant>,
    /// When it no longer is as good as new; nothing for Basic.
    fresh_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    challenge: Option<Challenge>,
    held: Option<Held>,
    /// A repository to pull from, beside the one that is pushed to.
    also_pull: Option<String>,
}

/// Authentication to one repository of one registry.
#[derive(Debug)]
pub(super) struct Auth {
    credential: Credential,
    image: ImageName,
    plain_http: bool,
    /// Only reads: the right to push is not asked for, which some logins don't have.
    reads: bool,
    state: Mutex<State>,
}

impl Auth {
    pub(super) fn new(credential: Credential, image: ImageName, plain_http: bool) -> Self {
        Self { credential, image, plain_http, reads: false, state: Mutex::default() }
    }

    /// Asks for the right to pull alone.
    pub(super) fn only_reads(&mut self) {
        self.reads = true;
    }

    /// How messages name who pushes.
    pub(super) fn who(&self) -> String {
        self.credential.who()
    }

    /// The header for the next request, if the registry has asked for one; a token half through its life is
    /// replaced first.
    pub(super) async fn header(&self, client: &Client) -> Result<Option<HeaderValue>, RegistryError> {
        let (challenge, held) = {
            let state = self.state();
            (state.challenge.clone(), state.held.clone())
        };
        match held {
            Some(Held { renew_at: Some(at), .. }) if at <= Instant::now() => match challenge {
                Some(challenge) => self.satisfy(client, challenge).await.map(Some),
                None => Ok(None),
            },
            held => Ok(held.map(|held| held.header)),
        }
    }

    /// Fetches a new token if the one at hand has lived for more than an eighth of its time: a long upload
    /// begins with a fresh one.
    pub(super) async fn freshen(&self, client: &Client) -> Result<(), RegistryError> {
        let stale = {
            let state = self.state();
            let until = state.held.as_ref().and_then(|held| held.fresh_until);
            state.challenge.clone().filter(|_| until.is_some_and(|at| at <= Instant::now()))
        };
        match stale {
            Some(challenge) => self.satisfy(client, challenge).await.map(drop),
            None => Ok(()),
        }
    }

    /// Asks for the right to pull from this repository as well, or no longer. A token is fetched anew.
    pub(super) fn also_pull(&self, repository: Option<&str>) {
        let mut state = self.state();
        if state.also_pull.as_deref() != repository {
            state.also_pull = repository.map(str::to_owned);
            // Basic authentication has no scopes, and stays.
            if state.held.as_ref().is_some_and(|held| held.renew_at.is_some()) {
                state.held = None;
            }
        }
    }

    /// Takes up the challenge of a 401: the next [`Auth::header`] answers it.
    pub(super) async fn answer(&self, client: &Client, headers: &HeaderMap) -> Result<(), RegistryError> {
        let challenge = self.choose(headers)?;
        self.satisfy(client, challenge).await.map(drop)
    }

    /// Why a request is refused though it carried what was asked for.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> RegistryError {
        let host = self.image.host().to_owned();
        let insufficient = challenges(headers).iter().any(|c| c.param("error") == Some("insufficient_scope"));
        match &self.credential {
            Credential::Anonymous => RegistryError::NoCredentials { host },
            _ if insufficient => RegistryError::NotAllowed {
                who: self.who(),
                what: if self.reads { "read" } else { "push to" },
                host,
                repository: self.image.repository().into(),
            },
            _ => RegistryError::CredentialsRefused { host, who: self.who() },
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics while it is held; were it so, the state is still whole.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn unfit(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::Challenge { host: self.image.host().into(), why: why.into() }
    }

    /// Bearer before Basic: a registry that offers both means the token for its API.
    fn choose(&self, headers: &HeaderMap) -> Result<Challenge, RegistryError> {
        let offered = challenges(headers);
        if let Some(bearer) = offered.iter().find(|c| c.scheme == "bearer") {
            let realm = bearer.param("realm").ok_or_else(|| self.unfit("a bearer token from no realm"))?;
            let realm = Url::parse(realm).map_err(|_| self.unfit("the token server's address is no URL"))?;
            let own_machine =
                self.plain_http && realm.scheme() == "http" && realm.host_str().is_some_and(is_loopback);
            if realm.scheme() != "https" && !own_machine {
                let host = realm.host_str().unwrap_or_default();
                return Err(self.unfit(format!(
                    "its token server {host} is not on https, and credentials are not sent in the clear"
                )));
            }
            return Ok(Challenge::Bearer { realm, service: bearer.param("service").map(str::to_owned) });
        }
        if offered.iter().any(|c| c.scheme == "basic") {
            return Ok(Challenge::Basic);
        }
        let schemes: Vec<_> = offered.into_iter().map(|c| c.scheme).collect();
        Err(self.unfit(match schemes.is_empty() {
            true => "it says 401 and not how to authenticate".into(),
            false => format!("only {} is offered", super::error::printable(&schemes.join(", "))),
        }))
    }

    async fn satisfy(&self, client: &Client, challenge: Challenge) -> Result<HeaderValue, RegistryError> {
        let held = match &challenge {
            Challenge::Basic => Held { header: self.basic()?, renew_at: None, fresh_until: None },
            Challenge::Bearer { realm, service } => self.token(client, realm, service.as_deref()).await?,
        };
        let header = held.header.clone();
        let mut state = self.state();
        (state.challenge, state.held) = (Some(challenge), Some(held));
        Ok(header)
    }

    fn basic(&self) -> Result<HeaderValue, RegistryError> {
        match &self.credential {
            Credential::Anonymous => Err(RegistryError::NoCredentials { host: self.image.host().into() }),
            Credential::IdentityToken(_) => Err(self.unfit(
                "basic authentication wants a user and password, and the login found is an identity token",
            )),
            Credential::Password { user, password } => {
                let pair = Zeroizing::new(format!("{user}:{}", password.expose()));
                let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
                self.secret_header("Basic", &encoded)
            }
        }
    }

    fn secret_header(&self, scheme: &str, value: &str) -> Result<HeaderValue, RegistryError> {
        let text = Zeroizing::new(format!("{scheme} {value}"));
        let mut header =
            HeaderValue::from_str(&text).map_err(|_| self.unfit("the token holds a control character"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    async fn token(
        &self,
        client: &Client,
        realm: &Url,
        service: Option<&str>,
    ) -> Result<Held, RegistryError> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<Secret>,
            access_token: Option<Secret>,
            expires_in: Option<u64>,
        }
        const DOING: &str = "fetching a token";
        let actions = if self.reads { "pull" } else { "pull,push" };
        let mut scopes = vec![format!("repository:{}:{actions}", self.image.repository())];
        scopes.extend(self.state().also_pull.as_ref().map(|from| format!("repository:{from}:pull")));
        // OAuth2 has one list, the other way one parameter each.
        if matches!(self.credential, Credential::IdentityToken(_)) {
            scopes = vec![scopes.join(" ")];
        }
        let mut query: Vec<_> = scopes.iter().map(|scope| ("scope", scope.as_str())).collect();
        query.extend(service.map(|service| ("service", service)));
        let request = match &self.credential {
            Credential::IdentityToken(token) => {
                query.extend([
                    ("grant_type", "refresh_token"),
                    ("client_id", "sealroot"),
                    ("refresh_token", token.expose()),
                ]);
                client.post(realm.clone()).form(&query)
            }
            Credential::Password { user, .. } => client
                .get(realm.clone())
                .query(&query)
                .query(&[("account", user.as_str())])
                .header(reqwest::header::AUTHORIZATION, self.basic()?),
            Credential::Anonymous => client.get(realm.clone()).query(&query),
        };
        let asked = Instant::now();
        let sent = match &self.credential {
            Credential::IdentityToken(token) => Some(Sent::token(token)),
            Credential::Password { .. } => self.basic()?.to_str().ok().map(Sent::header),
            Credential::Anonymous => None,
        };
        let mut response =
            request.timeout(http::SHORT).send().await.map_err(|e| http::failure(DOING, realm, e))?;
        if let Some(sent) = sent {
            response.extensions_mut().insert(sent);
        }
        match response.status().as_u16() {
            200 => {}
            // 400 is what OAuth2 says of a refresh token that is not good.
            status @ (400 | 401)
                if status == 401 || matches!(self.credential, Credential::IdentityToken(_)) =>
            {
                let host = http::host_of(realm);
                return Err(match self.credential {
                    Credential::Anonymous => RegistryError::NoCredentials { host: self.image.host().into() },
                    _ => RegistryError::CredentialsRefused { host, who: self.who() },
                });
            }
            status => {
                let mut error = status_error(DOING, response).await;
                // Whatever a server calls success may hold a token.
                if let RegistryError::Status { message, .. } = &mut error
                    && (200..300).contains(&status)
                {
                    *message = ServerMessage::default();
                }
                return Err(error);
            }
        }
        let body = Zeroizing::new(http::body(DOING, response, MAX_TOKEN_ANSWER).await?);
        let answer: Answer = serde_json::from_slice(&body).map_err(|_| {
            self.unfit(format!("the token server {} did not answer with a token", http::host_of(realm)))
        })?;
        let token = answer.token.or(answer.access_token).filter(|token| !token.expose().is_empty());
        let token = token
            .ok_or_else(|| self.unfit(format!("the token server {} gave no token", http::host_of(realm))))?;
        let life =
            Duration::from_secs(answer.expires_in.filter(|s| *s > 0).unwrap_or(TOKEN_LIFE).min(86_400));
        Ok(Held {
            header: self.secret_header("Bearer", token.expose())?,
            renew_at: Some(asked + life / 2),
            fresh_until: Some(asked + life / 8),
        })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// One scheme of a 401, its name in lower case.
#[derive(Debug)]
struct Offered {
    scheme: String,
    params: Vec<(String, String)>,
}

impl Offered {
    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Every challenge that can be read; what can't is as if it were not there.
fn challenges(headers: &HeaderMap) -> Vec<Offered> {
    let mut offered = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()) {
        for challenge in ChallengeParser::new(value).map_while(Result::ok) {
            let params = challenge.params.iter().map(|(key, v)| (key.to_ascii_lowercase(), v.to_unescaped()));
            offered.push(Offered { scheme: challenge.scheme.to_ascii_lowercase(), params: params.collect() });
        }
    }
    offered
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn auth(credential: Credential, plain_http: bool) -> Auth {
        Auth::new(credential, "h.example/a/b:t".parse().unwrap(), plain_http)
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|v| (WWW_AUTHENTICATE, HeaderValue::from_str(v).unwrap())).collect()
    }

    fn chosen(values: &[&str]) -> Result<Challenge, String> {
        auth(Credential::Anonymous, false).choose(&headers(values)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_token_is_preferred_and_must_come_over_tls() {
        let bearer = r#"Bearer realm="https://t.example/token",service="s v",scope="repository:x:pull""#;
        let expected = Challenge::Bearer {
            realm: "https://t.example/token".parse().unwrap(),
            service: Some("s v".into()),
        };
        assert_eq!(chosen(&[r#"Basic realm="x""#, bearer]).unwrap(), expected);
        assert_eq!(chosen(&[&format!(r#"Basic realm="x", {bearer}"#)]).unwrap(), expected);
        assert_eq!(chosen(&[r#"BASIC realm="x""#]).unwrap(), Challenge::Basic);
        assert!(chosen(&[r#"Bearer realm="http://t.example/token""#]).unwrap_err().contains("not on https"));
        assert!(chosen(&[r#"Bearer realm="http://127.0.0.1/token""#]).unwrap_err().contains("not on https"));
        assert!(chosen(&[r#"Bearer realm="file:///etc""#]).unwrap_err().contains("not on https"));
        assert!(chosen(&["Bearer"]).is_err());
        assert!(chosen(&[r#"Negotiate a="b""#]).unwrap_err().contains("negotiate"));
        assert!(chosen(&[]).unwrap_err().contains("not how"));
        let local = auth(Credential::Anonymous, true);
        assert!(local.choose(&headers(&[r#"Bearer realm="http://[::1]:5/token""#])).is_ok());
        assert!(local.choose(&headers(&[r#"Bearer realm="http://t.example/token""#])).is_err());
    }

    #[test]
    fn a_header_is_not_shown() {
        let auth = auth(Credential::password("u".into(), "hush".into()).unwrap(), false);
        let header = auth.basic().unwrap();
        assert_eq!(header.as_bytes(), b"Basic dTpodXNo");
        assert!(!format!("{header:?} {auth:?}").contains("dTpodXNo"));
        auth.state().held = Some(Held { header, renew_at: None, fresh_until: None });
        let shown = format!("{auth:?}");
        assert!(!shown.contains("dTpodXNo") && !shown.contains("hush"), "{shown}");
    }

    #[test]
    fn an_identity_token_is_no_password() {
        let error = auth(Credential::IdentityToken(Secret::new("hush".into())), false).basic().unwrap_err();
        assert!(error.to_string().contains("identity token") && !error.to_string().contains("hush"));
    }
}
