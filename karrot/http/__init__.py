"""How Karrot sends HTTP requests: proxies, redirects, time limits and certificates, in one place."""
