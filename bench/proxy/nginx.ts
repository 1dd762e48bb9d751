/** nginx as the bench uses it: in the foreground, one worker, everything that it writes in a folder of the bench. */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { ChildProcess } from "effect/process"
import { attempt, Problem } from "../../scripts/local/problem.ts"

/** The part of the configuration that is the same for every server: no log per request, connections that last. */
const configuration = (folder: string, http: string) => `
daemon off;
worker_processes 1;
pid ${folder}/pid;
error_log ${folder}/error.log warn;
events { worker_connections 1024; }
http {
  access_log off;
  default_type text/plain;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
${http}
}
`

/** Answers with the same few bytes, and under /large with a file: the fastest server at hand. */
export const answering = (port: number, body: string, folder: string) => `
  sendfile on;
  server {
    listen 127.0.0.1:${port};
    location / { return 200 "${body}"; }
    location = /large { root ${folder}; }
  }
`

export interface Certificate {
  readonly certificate: string
  readonly key: string
}

export interface Forwarding {
  readonly port: number
  /** The same under TLS, with HTTP/2. */
  readonly tlsPort: number
  readonly upstreamPort: number
  /** Requests for paths that begin with /upload go there. */
  readonly uploadPort: number
  /** Paths of PEM files. */
  readonly tls: Certificate
}

/** Forwards every request, as our proxy does: connections kept on both sides, nothing buffered, the caller named. */
export const forwarding = ({ port, tlsPort, upstreamPort, uploadPort, tls }: Forwarding) => `
  upstream app {
    server 127.0.0.1:${upstreamPort};
    keepalive 128;
    keepalive_requests 1000000000;
  }
  upstream uploads {
    server 127.0.0.1:${uploadPort};
    keepalive 128;
    keepalive_requests 1000000000;
  }
  ssl_certificate ${tls.certificate};
  ssl_certificate_key ${tls.key};
  server {
    listen 127.0.0.1:${port};
    listen 127.0.0.1:${tlsPort} ssl http2;
    http2_max_requests 1000000000;
    location / {
      proxy_pass http://app;
      ${PASSING}
    }
    location /upload {
      proxy_pass http://uploads;
      ${PASSING}
    }
  }
`

const PASSING = `
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
`

/** Starts an nginx with this `http` section; it ends with the scope. */
export const startNginx = (folder: string, http: string) =>
  Effect.gen(function* () {
    yield* attempt("nginx cannot be set up", () => {
      mkdirSync(folder, { recursive: true })
      writeFileSync(join(folder, "nginx.conf"), configuration(folder, http))
    })
    yield* ChildProcess.make(
      "nginx",
      ["-p", folder, "-e", `${folder}/error.log`, "-c", `${folder}/nginx.conf`],
      {
        stdin: "ignore",
        stdout: "ignore",
        stderr: "ignore",
        killSignal: "SIGTERM",
        forceKillAfter: "5 seconds"
      }
    )
  }).pipe(
    Effect.catchTag(
      "PlatformError",
      (error) => new Problem({ message: `nginx could not be started: ${error.message}` })
    )
  )
