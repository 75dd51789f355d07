//! What an engine can answer instead of doing what was asked.

/// How much of the work must be repeated after a failure that is no fault of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else holds what is needed: the same statement may be tried again.
    Busy,
    /// The transaction cannot be serialized with one that has committed: all of it must be repeated.
    Conflict,
    /// Two transactions wait for each other and this one was chosen to give way: all of it must be repeated.
    Deadlock,
}

/// Why an operation was not done.
#[derive(Debug)]
pub enum Failure {
    /// Refused for the sake of another transaction; the text is the engine's own.
    Refused(Refusal, String),
    /// The engine has no such operation or setting: a cell with it is reported as not applicable.
    Unsupported(String),
    /// Everything else. It ends the trial, which is then reported as failed.
    Broken(anyhow::Error),
}

/// The result of an operation of an engine.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure for which nothing but its text is known.
    pub fn broken(text: impl Into<String>) -> Self {
        Self::Broken(anyhow::anyhow!(text.into()))
    }

    /// An operation that this engine does not have.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::Unsupported(text.into())
    }

    /// The refusal, unless it is something worse.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal, _) => Some(*refusal),
            Self::Unsupported(_) | Self::Broken(_) => None,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(Refusal::Busy, text) => write!(f, "busy: {text}"),
            Self::Refused(Refusal::Conflict, text) => write!(f, "conflict: {text}"),
            Self::Refused(Refusal::Deadlock, text) => write!(f, "deadlock: {text}"),
            Self::Unsupported(text) => write!(f, "not supported: {text}"),
            Self::Broken(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.into())
    }
}
