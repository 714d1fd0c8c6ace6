// Command controlplane is a Kubernetes control plane in one program: etcd, API server, controller manager and scheduler,
// as the first argument says. Built for tests alone; one program links what they have in common once.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	parts := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) > 1 && os.Args[1] == "etcd" {
		etcdmain.Main(os.Args[1:])
		return
	}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler ARGUMENTS")
		os.Exit(2)
	}
	command := parts[os.Args[1]]()
	os.Args = os.Args[1:]
	os.Exit(cli.Run(command))
}
