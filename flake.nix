{
  description = "Turns one Linux machine into a host for hundreds of apps, each in a microVM of its own";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      nodejs = pkgs.nodejs_24;
      version = (builtins.fromJSON (builtins.readFile ./package.json)).version;

      # What a host runs: the hypervisor, and the makers of volumes and layers.
      runtimeTools = [
        pkgs.e2fsprogs
        pkgs.qemu
        pkgs.squashfsTools
      ];

      # The Node of package-lock.json is linked for other distributions; here nixpkgs' own takes its place.
      project =
        attrs:
        pkgs.stdenv.mkDerivation (
          {
            inherit version;
            src = self;
            npmDeps = pkgs.importNpmLock { npmRoot = self; };
            npmFlags = [ "--ignore-scripts" ];
            nativeBuildInputs = [
              nodejs
              pkgs.importNpmLock.npmConfigHook
              pkgs.makeWrapper
            ];
          }
          // attrs
        );
    in
    {
      packages.${system}.default = project {
        pname = "nibrunner";
        buildPhase = ''
          runHook preBuild
          node scripts/bundle.ts
          runHook postBuild
        '';
        installPhase = ''
          runHook preInstall
          install -D -m 0644 -t $out/lib/nibrunner dist/*.mjs
          makeWrapper ${nodejs}/bin/node $out/bin/nibrunnerd \
            --add-flags $out/lib/nibrunner/nibrunnerd.mjs \
            --prefix PATH : ${pkgs.lib.makeBinPath runtimeTools}
          runHook postInstall
        '';
        meta = {
          description = "A host for apps, each in a microVM of its own";
          license = pkgs.lib.licenses.asl20;
          mainProgram = "nibrunnerd";
          platforms = [ system ];
        };
      };

      devShells.${system}.default = pkgs.mkShell {
        packages = runtimeTools ++ [
          nodejs
          pkgs.clang
          pkgs.cpio
          pkgs.mmdebstrap
          pkgs.musl.dev
          pkgs.nginx
          pkgs.shellcheck
          pkgs.wrk
        ];
      };

      checks.${system} = {
        package = self.packages.${system}.default;
        types = project {
          pname = "nibrunner-types";
          buildPhase = "node node_modules/typescript/bin/tsc -p .";
          installPhase = "touch $out";
        };
      };

      formatter.${system} = pkgs.nixfmt;
    };
}
