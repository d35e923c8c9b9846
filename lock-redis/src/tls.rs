use std::{path::Path, sync::Arc};

use lock_core::{Error, ErrorKind, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

/// TLS that verifies the server against the system's roots, or against those of one PEM file alone.
pub(crate) fn connector(roots: Option<&Path>) -> Result<TlsConnector> {
    let roots = match roots {
        Some(path) => roots_in(path)?,
        None => roots_of_the_system()?,
    };
    // With the provider named here nothing depends on what else the process has installed.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(ErrorKind::Internal, "TLS has no usable version").with_source(e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the server's certificate must be for.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|e| Error::invalid_input(format!("{host:?} is no host name for TLS")).with_source(e))
}

fn roots_in(path: &Path) -> Result<RootCertStore> {
    let unusable = || format!("the root certificates in {path:?} cannot be used");
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(path).map_err(|e| Error::invalid_input(unusable()).with_source(e))?
    {
        let certificate = certificate.map_err(|e| Error::invalid_input(unusable()).with_source(e))?;
        roots.add(certificate).map_err(|e| Error::invalid_input(unusable()).with_source(e))?;
    }
    if roots.is_empty() {
        return Err(Error::invalid_input(format!("there is no certificate in {path:?}")));
    }
    Ok(roots)
}

fn roots_of_the_system() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's store may have odd entries; one that can be used is enough.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "this system has no root certificates; name a PEM file with the option ca",
        ));
    }
    Ok(roots)
}
